package binlog

import (
	"slices"
	"strings"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// replicationFilter is one line of performance_schema.replication_applier_filters.
type replicationFilter struct {
	channel string
	kind    string // REPLICATE_DO_DB and so on
	rule    string // as the server prints it
	by      string // CONFIGURED_BY
}

// filterRules are the filters of a server, all channels united: what any
// channel filters is filtered.
//
// The server joins names with commas and quotes nothing, and a name may hold
// commas: --replicate-do-db=a,b is one name, which people take for two. Each list
// holds what is between the commas; a list that may be read otherwise lets nothing
// through that only one reading does.
type filterRules struct {
	doDB, ignoreDB         []string
	doTable, ignoreTable   []string
	wildDo, wildIgnore     []string
	rewrites               []string // (from,to),(from,to)
	binlogDo, binlogIgnore []string
	// unsure names the do-lists that may well be fewer names.
	unsure []string
	// commas: some schema or table has a comma in its name, so that no do-list of
	// several names is sure.
	commas bool
	// replica: the server is not a primary by itself alone. A stopped channel that
	// is still configured makes it none: another may be.
	replica bool
}

func (f *serverFacts) rules() *filterRules {
	r := &filterRules{binlogDo: f.doDB, binlogIgnore: f.ignoreDB}
	r.replica = decideRole(roleInput{writable: !f.readOnly, facts: f, otherPrimary: true}).role != event.RolePrimary
	r.doubt("binlog-do-db", r.binlogDo)
	for _, x := range f.filters {
		items := splitRule(x.rule)
		// In CHANGE REPLICATION FILTER a comma separates unless a name is quoted;
		// patterns are texts there as well.
		stated := strings.HasPrefix(x.by, "CHANGE_REPLICATION_FILTER")
		switch strings.ToUpper(x.kind) {
		case "REPLICATE_DO_DB":
			r.doDB = append(r.doDB, items...)
			if !stated {
				r.doubt("replicate-do-db", items)
			}
		case "REPLICATE_IGNORE_DB":
			r.ignoreDB = append(r.ignoreDB, items...)
		case "REPLICATE_DO_TABLE":
			r.doTable = append(r.doTable, items...)
			if !stated {
				r.doubt("replicate-do-table", items)
			}
		case "REPLICATE_IGNORE_TABLE":
			r.ignoreTable = append(r.ignoreTable, items...)
		case "REPLICATE_WILD_DO_TABLE":
			r.wildDo = append(r.wildDo, items...)
			r.doubt("replicate-wild-do-table", items)
		case "REPLICATE_WILD_IGNORE_TABLE":
			r.wildIgnore = append(r.wildIgnore, items...)
		case "REPLICATE_REWRITE_DB":
			if x.rule != "" {
				r.rewrites = append(r.rewrites, x.rule)
			}
		}
	}
	return r
}

// doubt notes a do-list that may be one name with commas.
func (r *filterRules) doubt(list string, items []string) {
	if len(items) > 1 && !slices.Contains(r.unsure, list) {
		r.unsure = append(r.unsure, list)
	}
}

// splitRule takes a list apart; blanks belong to the names.
func splitRule(rule string) []string {
	if rule == "" {
		return nil
	}
	return strings.Split(rule, ",")
}

// active tells whether anything is filtered.
func (r *filterRules) active() bool { return len(r.printed()) > 0 }

// printed lists the rules for people.
func (r *filterRules) printed() []string {
	var out []string
	for _, x := range []struct {
		name  string
		items []string
	}{
		{"replicate-do-db", r.doDB},
		{"replicate-ignore-db", r.ignoreDB},
		{"replicate-do-table", r.doTable},
		{"replicate-ignore-table", r.ignoreTable},
		{"replicate-wild-do-table", r.wildDo},
		{"replicate-wild-ignore-table", r.wildIgnore},
		{"replicate-rewrite-db", r.rewrites},
		{"binlog-do-db", r.binlogDo},
		{"binlog-ignore-db", r.binlogIgnore},
	} {
		for _, item := range x.items {
			out = append(out, x.name+": "+strings.TrimSuffix(strings.TrimPrefix(item, "("), ")"))
		}
		if slices.Contains(r.unsure, x.name) {
			out = append(out, x.name+": several names or one with commas, which the server prints alike: every table counts as filtered")
		}
	}
	return out
}

// filters tells whether changes of a table may not arrive on the server. Where
// MySQL filters statements by the default database instead of the table's, the
// careful reading holds: either one filters. fold compares names without case.
func (r *filterRules) filters(schema, table string, fold bool) bool {
	eq := func(a, b string) bool { return a == b || fold && strings.EqualFold(a, b) }
	// may tells whether some reading of a list names x, sure whether each does.
	may := func(list []string, x string) bool {
		return slices.ContainsFunc(runs(list, x), func(item string) bool { return eq(item, x) })
	}
	sure := func(list []string, x string) bool {
		return slices.ContainsFunc(list, func(item string) bool { return eq(item, x) })
	}
	full := schema + "." + table
	wild := func(list []string) bool {
		return slices.ContainsFunc(list, func(x string) bool { return likeName(x, full, fold) })
	}
	switch {
	case len(r.unsure) > 0, r.commas && max(len(r.doDB), len(r.doTable)) > 1:
		return true
	case slices.ContainsFunc(r.rewrites, func(x string) bool { return rewrites(x, schema, fold) }):
		return true
	case may(r.binlogIgnore, schema), len(r.binlogDo) > 0 && !sure(r.binlogDo, schema):
		return true
	case may(r.ignoreDB, schema), len(r.doDB) > 0 && !sure(r.doDB, schema):
		return true
	}
	// The first list that names the table decides, in this order.
	switch {
	case sure(r.doTable, full):
		return false
	case may(r.ignoreTable, full):
		return true
	case wild(r.wildDo):
		return false
	case wild(runs(r.wildIgnore, full)):
		return true
	}
	return len(r.doTable) > 0 || len(r.wildDo) > 0
}

// runs joins neighbours of a list with the commas that they were split at, as far
// as name has commas to match.
func runs(list []string, name string) []string {
	commas := strings.Count(name, ",")
	if commas == 0 {
		return list
	}
	var out []string
	for i := range list {
		for n := i + 1; n <= min(len(list), i+commas+1); n++ {
			out = append(out, strings.Join(list[i:n], ","))
		}
	}
	return out
}

// rewrites tells whether (from,to),(from,to) may name a schema on either side.
func rewrites(rule, schema string, fold bool) bool {
	if fold {
		rule, schema = strings.ToLower(rule), strings.ToLower(schema)
	}
	return strings.Contains(rule, "("+schema+",") || strings.Contains(rule, ","+schema+")")
}

// likeName matches a name against a pattern of LIKE: % any run, _ any one byte, or
// character where names are compared without case, backslash takes the next
// literally.
func likeName(pattern, name string, fold bool) bool {
	if fold {
		return like([]rune(strings.ToLower(pattern)), []rune(strings.ToLower(name)))
	}
	return like([]byte(pattern), []byte(name))
}

// like is iterative: a pattern of many % can't make it slow.
func like[C byte | rune](p, s []C) bool {
	i, j, star, mark := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '%':
			star, mark = i, j
			i++
		case i+1 < len(p) && p[i] == '\\' && p[i+1] == s[j]:
			i, j = i+2, j+1
		case i < len(p) && (p[i] != '\\' || i+1 == len(p)) && (p[i] == '_' || p[i] == s[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '%' {
		i++
	}
	return i == len(p)
}

// tableView is what the tables of a server come to beside the primary's.
type tableView struct {
	printed []string     // Filtered
	digests []key.Digest // FilteredTables
	names   map[key.Digest]string
	// judged are the tables of which the primary's definition was known, so that
	// their engine could be compared.
	judged map[key.Digest]bool
}

// excludeTables finds the tables that a server can not answer for: filtered by
// its configuration, kept by another engine than the primary's, or, on a replica,
// by an engine that does not keep what was executed (rules §2.4). own are the
// server's tables, known the primary's definitions, dropped ones included or not.
func excludeTables(r *filterRules, own []tableFact, known []event.TableDefinition, h key.Hasher, foldNames bool) tableView {
	v := tableView{printed: r.printed(), names: map[key.Digest]string{}, judged: map[key.Digest]bool{}}
	name := func(s string) string {
		if foldNames {
			return key.FoldName(s)
		}
		return s
	}
	out := map[key.Digest]bool{}
	engines := make(map[[2]string]string, len(own))
	comma := func(schema, table string) bool { return strings.Contains(schema, ",") || strings.Contains(table, ",") }
	r.commas = slices.ContainsFunc(own, func(t tableFact) bool { return comma(t.Schema, t.Table) }) ||
		slices.ContainsFunc(known, func(t event.TableDefinition) bool { return comma(t.Schema, t.Table) })
	consider := func(schema, table string) key.Digest {
		d := h.Table(schema, table).AnyRow
		v.names[d] = schema + "." + table
		if r.filters(schema, table, foldNames) {
			out[d] = true
		}
		return d
	}
	elsewhere := map[key.Digest]string{} // printed
	judge := func(d key.Digest, engine string) {
		if why := event.RowsElsewhere(engine); why != "" && elsewhere[d] == "" {
			elsewhere[d] = v.names[d] + ": engine " + engine + ": " + why
		}
	}
	for _, t := range own {
		s, n := name(t.Schema), name(t.Table)
		engines[[2]string{s, n}] = t.Engine
		judge(consider(s, n), t.Engine)
	}
	for i := range known {
		t := &known[i]
		if t.Dropped {
			continue
		}
		d := consider(t.Schema, t.Table)
		v.judged[d] = true
		here, ok := engines[[2]string{t.Schema, t.Table}]
		if ok && t.Engine != "" && !strings.EqualFold(here, t.Engine) {
			out[d] = true
			v.printed = append(v.printed, t.Schema+"."+t.Table+": engine "+here+" here, "+t.Engine+" on the primary")
			delete(elsewhere, d)
		} else {
			judge(d, t.Engine)
		}
	}
	for d, printed := range elsewhere {
		switch {
		case r.replica:
			out[d] = true
			v.printed = append(v.printed, printed)
		case !out[d]:
			// Without its name it is not taken for a table whose filter was lifted,
			// and tainted, on a replica that became the primary: what it has there
			// is what there is.
			delete(v.names, d)
		}
	}
	for d := range out {
		v.digests = append(v.digests, d)
	}
	slices.SortFunc(v.digests, func(a, b key.Digest) int { return slices.Compare(a[:], b[:]) })
	slices.Sort(v.printed)
	return v
}
