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
	rule    string // comma-separated
}

// filterRules are the filters of a server, all channels united: what any
// channel filters is filtered.
type filterRules struct {
	doDB, ignoreDB         []string
	doTable, ignoreTable   []string
	wildDo, wildIgnore     []string
	rewriteFrom, rewriteTo []string
	binlogDo, binlogIgnore []string
}

func (f *serverFacts) rules() *filterRules {
	r := &filterRules{binlogDo: f.doDB, binlogIgnore: f.ignoreDB}
	for _, x := range f.filters {
		items := splitRule(x.rule)
		switch strings.ToUpper(x.kind) {
		case "REPLICATE_DO_DB":
			r.doDB = append(r.doDB, items...)
		case "REPLICATE_IGNORE_DB":
			r.ignoreDB = append(r.ignoreDB, items...)
		case "REPLICATE_DO_TABLE":
			r.doTable = append(r.doTable, items...)
		case "REPLICATE_IGNORE_TABLE":
			r.ignoreTable = append(r.ignoreTable, items...)
		case "REPLICATE_WILD_DO_TABLE":
			r.wildDo = append(r.wildDo, items...)
		case "REPLICATE_WILD_IGNORE_TABLE":
			r.wildIgnore = append(r.wildIgnore, items...)
		case "REPLICATE_REWRITE_DB":
			// Printed as (from,to),(from,to).
			for i, item := range items {
				item = strings.Trim(item, "() ")
				if i%2 == 0 {
					r.rewriteFrom = append(r.rewriteFrom, item)
				} else {
					r.rewriteTo = append(r.rewriteTo, item)
				}
			}
		}
	}
	return r
}

func splitRule(rule string) []string {
	var out []string
	for item := range strings.SplitSeq(rule, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
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
		{"replicate-rewrite-db", r.rewriteFrom},
		{"binlog-do-db", r.binlogDo},
		{"binlog-ignore-db", r.binlogIgnore},
	} {
		for _, item := range x.items {
			out = append(out, x.name+": "+item)
		}
	}
	return out
}

// filters tells whether changes of a table may not arrive on the server. Where
// MySQL filters statements by the default database instead of the table's, the
// careful reading holds: either one filters. fold compares names without case.
func (r *filterRules) filters(schema, table string, fold bool) bool {
	eq := func(a, b string) bool { return a == b || fold && strings.EqualFold(a, b) }
	hasDB := func(list []string) bool {
		return slices.ContainsFunc(list, func(x string) bool { return eq(x, schema) })
	}
	full := schema + "." + table
	hasTable := func(list []string) bool {
		return slices.ContainsFunc(list, func(x string) bool { return eq(x, full) })
	}
	hasWild := func(list []string) bool {
		return slices.ContainsFunc(list, func(x string) bool { return likeName(x, full, fold) })
	}
	switch {
	case hasDB(r.rewriteFrom), hasDB(r.rewriteTo):
		return true
	case hasDB(r.binlogIgnore), len(r.binlogDo) > 0 && !hasDB(r.binlogDo):
		return true
	case hasDB(r.ignoreDB), len(r.doDB) > 0 && !hasDB(r.doDB):
		return true
	}
	// The first list that names the table decides, in this order.
	switch {
	case hasTable(r.doTable):
		return false
	case hasTable(r.ignoreTable):
		return true
	case hasWild(r.wildDo):
		return false
	case hasWild(r.wildIgnore):
		return true
	}
	return len(r.doTable) > 0 || len(r.wildDo) > 0
}

// likeName matches a name against a pattern of LIKE: % any run, _ any one byte,
// backslash takes the next literally.
func likeName(pattern, name string, fold bool) bool {
	if fold {
		pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	}
	return like(pattern, name)
}

// like is iterative: a pattern of many % can't make it slow.
func like(p, s string) bool {
	i, j, star, mark := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '%':
			star, mark = i, j
			i++
		case i+1 < len(p) && p[i] == '\\' && p[i+1] == s[j]:
			i, j = i+2, j+1
		case i < len(p) && p[i] != '\\' && (p[i] == '_' || p[i] == s[j]):
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
// its configuration, or kept by another engine than the primary's (rules §2.4).
// own are the server's tables, known the primary's definitions, dropped ones
// included or not.
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
	consider := func(schema, table string) key.Digest {
		d := h.Table(schema, table).AnyRow
		v.names[d] = schema + "." + table
		if r.filters(schema, table, foldNames) {
			out[d] = true
		}
		return d
	}
	for _, t := range own {
		s, n := name(t.Schema), name(t.Table)
		engines[[2]string{s, n}] = t.Engine
		consider(s, n)
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
		}
	}
	for d := range out {
		v.digests = append(v.digests, d)
	}
	slices.SortFunc(v.digests, func(a, b key.Digest) int { return slices.Compare(a[:], b[:]) })
	slices.Sort(v.printed)
	return v
}
