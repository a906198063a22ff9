package rulestest

import (
	"fmt"
	"math/bits"
	"sync"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// The size of the world. It is small, so that things meet.
const (
	numServers  = 3
	numRouters  = 2
	numSessions = 2
	numRows     = 3
	numGroups   = 2

	maxTransactions = 30 // also of GTIDs
	freshWrites     = 24 // of them made on the primary
)

// A key of the world: its rows, then its group values, then any row.
const (
	firstGroup = numRows
	anyRow     = numRows + numGroups
	numKeys    = anyRow + 1
)

// set is a set of GTIDs (by slot) or of transactions (by place).
type set uint64

func one(i int8) set            { return 1 << uint(i) }
func (s set) has(i int8) bool   { return i >= 0 && s>>uint(i)&1 == 1 }
func (s set) within(o set) bool { return s&^o == 0 }
func (s set) first() int8       { return int8(bits.TrailingZeros64(uint64(s))) }
func (s set) each(fn func(int8)) {
	for ; s != 0; s &= s - 1 {
		fn(s.first())
	}
}

func pick(n int, b byte) int { return int(b) % n }

// words is the vocabulary that the world shares with the index: one table with
// a group column, under two definitions of its primary key.
type words struct {
	secret     key.Secret
	hasher     key.Hasher
	any        key.Digest // the table, and its any-row scope
	allRows    key.Digest
	allGroup   key.Digest
	everything key.Digest
	row        [2][numRows]key.Digest
	group      [numGroups]key.Digest
	defs       [2]*event.TableDefinition
	keys       [numKeys]key.Key
}

const (
	schemaName = "app"
	tableName  = "posts"
	columnName = "author_id"
)

// vocabulary is worked out once; it is never modified.
var vocabulary = sync.OnceValue(func() *words {
	v := &words{secret: key.Secret{1, 2, 3}}
	v.hasher = key.NewHasher(v.secret)
	t := v.hasher.Table(schemaName, tableName)
	g := t.Group(columnName)
	v.any, v.allRows, v.allGroup, v.everything = t.AnyRow, t.AllRows, g.AllRows, t.Everything
	for r := range numRows {
		v.keys[r] = key.Key{Kind: key.KindRow, Schema: schemaName, Table: tableName, Values: []key.TextValue{{Text: fmt.Sprint(r)}}}
	}
	for n := range numGroups {
		v.keys[firstGroup+n] = key.Key{Kind: key.KindGroup, Schema: schemaName, Table: tableName, Column: columnName, Values: []key.TextValue{{Text: fmt.Sprint(n)}}}
	}
	v.keys[anyRow] = key.Key{Kind: key.KindAnyRow, Schema: schemaName, Table: tableName}
	for i, pk := range []key.Column{
		{Name: "id", Type: key.TypeInt, Length: 4},
		{Name: "id", Type: key.TypeVarchar, Collation: "utf8mb4_0900_bin"},
	} {
		d := &event.TableDefinition{Engine: "InnoDB", Definition: key.Definition{
			Schema: schemaName, Table: tableName, Columns: 2, Primary: []key.Column{pk},
			Groups: []key.Column{{Name: columnName, Type: key.TypeInt, Length: 4, Ordinal: 1}},
		}}
		d.Seal()
		v.defs[i] = d
		var c key.Cover
		for n := range firstGroup + numGroups {
			if err := d.Cover(v.hasher, &v.keys[n], &c); err != nil {
				panic(err)
			}
			if n < firstGroup {
				v.row[i][n] = c.Own
			} else {
				v.group[n-firstGroup] = c.Own
			}
		}
	}
	return v
})

var keyNames = [numKeys]string{"row 0", "row 1", "row 2", "group 0", "group 1", "any row"}

var serverNames = [numServers]string{"a", "b", "c"}
