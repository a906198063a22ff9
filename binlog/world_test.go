package binlog_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/testenv/testenvtest"
)

// snapshot is what a server's tables hold: for each table its rows, by the
// printed key, and the group keys of each.
type snapshot map[string]map[string]rowState

type rowState struct {
	text   string // everything in the row
	groups []string
}

// bench of one case: a schema, a session, a tail.
type bed struct {
	t    testing.TB
	s    *session
	l    *tail
	name string
	n    scopeNames
	defs map[string]key.Definition // as of the last snapshot, by table
}

// newBed makes a schema, runs setup in it, and tails from before setup.
func newBed(t testing.TB, name string, groups map[string][]string, setup ...string) *bed {
	t.Helper()
	s := newSession(t, servers.Primary())
	return newBedOn(t, s, name, groups, setup...)
}

func newBedOn(t testing.TB, s *session, name string, groups map[string][]string, setup ...string) *bed {
	t.Helper()
	schema(t, s, name)
	l := startTail(t, servers.Primary(), func(o *binlog.TailerOptions) {
		o.Groups = map[string][]string{}
		for table, cols := range groups {
			o.Groups[name+"."+table] = cols
		}
	})
	b := &bed{t: t, s: s, l: l, name: name, n: scopeNames{}, defs: map[string]key.Definition{}}
	b.n.table(name, "") // for the schema's scopes
	s.exec("SET time_zone='+00:00'")
	s.exec(setup...)
	b.learn()
	return b
}

// learn waits until the definitions of all tables are the newest and usable.
func (b *bed) learn() {
	b.t.Helper()
	b.l.caughtUp()
	tables := b.s.rows("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' AND ENGINE<>'MRG_MYISAM' AND TABLE_SCHEMA='" + b.name + "'")
	b.defs = map[string]key.Definition{}
	for _, table := range tables {
		b.n.table(b.name, table)
		want := b.s.rows(fmt.Sprintf("SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA='%s' AND TABLE_NAME='%s' AND INDEX_NAME='PRIMARY' ORDER BY SEQ_IN_INDEX", b.name, table))
		columns := b.s.rows(fmt.Sprintf("SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='%s' AND TABLE_NAME='%s'", b.name, table))
		testenvtest.WaitUntil(b.t, hang, func() (bool, string) {
			d, ok := b.l.rec.definition(b.name + "." + table)
			var got []string
			for _, c := range d.Primary {
				got = append(got, c.Name)
			}
			ok = ok && !d.Dropped && slices.Equal(got, want) && fmt.Sprint(d.Columns) == columns[0]
			if ok {
				b.defs[table] = d.Definition
			}
			return ok, fmt.Sprintf("table %s: definition %+v, want primary key %q", table, d, want)
		})
	}
}

// valueSQL prints a column as a caller of Tidegate would.
func valueSQL(c *key.Column) string {
	name := "`" + strings.ReplaceAll(c.Name, "`", "``") + "`"
	switch c.Type {
	case key.TypeBinary, key.TypeVarbinary:
		return "CONCAT('0x',HEX(" + name + "))"
	case key.TypeBit, key.TypeInt: // not as ZEROFILL prints it
		return name + "+0"
	}
	return "CAST(" + name + " AS CHAR)"
}

// take reads every table that has a definition.
func (b *bed) take() snapshot {
	b.t.Helper()
	snap := snapshot{}
	for table, d := range b.defs {
		quoted := "`" + b.name + "`.`" + strings.ReplaceAll(table, "`", "``") + "`"
		cols := b.s.rows(fmt.Sprintf("SELECT CONCAT(IF(DATA_TYPE='vector','HEX(`','HEX(CONCAT(`'), COLUMN_NAME, IF(DATA_TYPE='vector','`)','`))')) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='%s' AND TABLE_NAME='%s' ORDER BY ORDINAL_POSITION",
			b.name, strings.ReplaceAll(table, "'", "''")))
		if len(cols) == 0 {
			continue // dropped
		}
		var list []string
		for i := range d.Primary {
			list = append(list, valueSQL(&d.Primary[i]))
		}
		for i := range d.Groups {
			list = append(list, valueSQL(&d.Groups[i]))
		}
		list = append(list, cols...)
		snap[table] = map[string]rowState{}
		for i, line := range b.s.rows("SELECT " + strings.Join(list, ",") + " FROM " + quoted) {
			f := strings.Split(line, "\x01")
			k := key.Key{Kind: key.KindRow, Schema: b.name, Table: table}
			for j := range d.Primary {
				k.Values = append(k.Values, textValue(f[j]))
			}
			id := k.String()
			if len(d.Primary) == 0 {
				id = fmt.Sprint("row ", i)
			}
			r := rowState{text: strings.Join(f, "|")}
			for j := range d.Groups {
				g := key.Key{Kind: key.KindGroup, Schema: b.name, Table: table, Column: d.Groups[j].Name, Values: []key.TextValue{textValue(f[len(d.Primary)+j])}}
				r.groups = append(r.groups, g.String())
			}
			snap[table][id] = r
		}
	}
	return snap
}

func textValue(s string) key.TextValue {
	if s == "\x00" {
		return key.TextValue{Null: true}
	}
	return key.TextValue{Text: s}
}

// changes are the keys of what differs between two snapshots.
type changes struct {
	rows, groups map[string][]string // by table
}

func diff(before, after snapshot) changes {
	c := changes{map[string][]string{}, map[string][]string{}}
	note := func(table, id string, r rowState) {
		c.rows[table] = append(c.rows[table], id)
		c.groups[table] = append(c.groups[table], r.groups...)
	}
	for table, rows := range before {
		for id, r := range rows {
			if now, ok := after[table][id]; !ok || now.text != r.text {
				note(table, id, r)
				if ok {
					note(table, id, now)
				}
			}
		}
	}
	for table, rows := range after {
		for id, r := range rows {
			if _, ok := before[table][id]; !ok {
				note(table, id, r)
			}
		}
	}
	return c
}

// covered fails when a key that the server changed is covered by no scope that
// the transactions wrote (P2).
func (b *bed) covered(c changes, txns []*event.Transaction) {
	b.t.Helper()
	written := map[key.Digest]bool{}
	for _, tx := range txns {
		for _, d := range tx.Tables {
			written[d] = true
		}
		for _, d := range tx.Scopes {
			written[d] = true
		}
	}
	for table, ids := range c.rows {
		d := b.defs[table]
		for _, id := range append(slices.Clone(ids), c.groups[table]...) {
			if len(d.Primary) == 0 && strings.HasPrefix(id, "row ") {
				id = b.name + "." + table + "/*"
			}
			k, err := key.Parse(id)
			if err != nil {
				b.t.Fatal(err)
			}
			var cover key.Cover
			if err := d.Cover(testHasher, &k, &cover); err != nil {
				b.t.Fatalf("%s: %v", id, err)
			}
			ok := written[cover.Own]
			for _, w := range cover.Wide[:cover.NWide] {
				ok = ok || written[w]
			}
			if !ok {
				b.t.Errorf("%s was changed and nothing written covers it; written: %q", id, b.n.names(txns...))
			}
		}
	}
}

// narrow names the scopes that row events of c write when every row can be
// folded.
func (b *bed) narrow(c changes) (want []string) {
	for table, ids := range c.rows {
		d := b.defs[table]
		want = append(want, "any:"+b.name+"."+table)
		if !d.RowsUsable() {
			want = append(want, "all:"+b.name+"."+table)
			continue
		}
		for _, id := range ids {
			want = append(want, b.n[b.n.key(b.t, &d, id)])
		}
		for _, g := range c.groups[table] {
			want = append(want, b.n[b.n.key(b.t, &d, g)])
		}
	}
	sort.Strings(want)
	return slices.Compact(want)
}

// change runs statements and returns what the tail made of them, and what the
// server says has changed.
func (b *bed) change(statements ...string) ([]*event.Transaction, changes) {
	b.t.Helper()
	b.l.caughtUp()
	from := executed(b.t, servers.Primary())
	before := b.take()
	b.s.exec(statements...)
	set := b.l.caughtUp()
	c := diff(before, b.take())
	txns := b.l.rec.in(set.Subtract(from))
	b.covered(c, txns)
	return txns, c
}

// sameDefinitions fails when transactions name other definitions than those that
// were looked up: a caller folds with the one, the stream with the other.
func (b *bed) sameDefinitions(txns []*event.Transaction) {
	b.t.Helper()
	for _, tx := range txns {
		for _, ref := range tx.Defs {
			for table, d := range b.defs {
				if s := testHasher.Table(b.name, table); s.AnyRow == ref.Table && d.Version != ref.Version {
					b.t.Errorf("rows of %s were folded with definition %x; looked up is %x: %+v", table, ref.Version, d.Version, d)
				}
			}
		}
	}
}
