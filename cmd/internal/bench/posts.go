package bench

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// posts makes what a tailer would make of single-row transactions on app.posts.
// One goroutine uses it.
type posts struct {
	def   event.TableDefinition
	table key.TableScopes
	form  []byte
}

func newPosts(h key.Hasher) *posts {
	p := &posts{table: h.Table("app", "posts")}
	p.def.Definition = key.Definition{
		Schema: "app", Table: "posts", Columns: 3,
		Primary: []key.Column{{Name: "id", Type: key.TypeInt, Length: 8}},
	}
	p.def.Seal()
	return p
}

// transaction is the primary's transaction seq, committed at so many
// microseconds since 1970, which wrote one row.
func (p *posts) transaction(seq, at, row int64) (*event.Transaction, error) {
	form, err := p.def.Primary[0].AppendForm(p.form[:0], key.Value{Int: row})
	if err != nil {
		return nil, err
	}
	p.form = form
	return &event.Transaction{
		GTID: gtid.GTID{UUID: worldUUID(0), Seq: seq}, OriginalCommit: at, ImmediateCommit: at, SizeBytes: 300,
		Tables: []key.Digest{p.table.AnyRow}, Scopes: []key.Digest{p.table.Row(form)},
		Defs: []event.DefRef{{Table: p.table.AnyRow, Version: p.def.Version}},
	}, nil
}
