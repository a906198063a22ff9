package key

import (
	"encoding/binary"

	"github.com/dchest/siphash"
)

// Digest is the 128-bit keyed digest of one scope: a row, a group value, any
// row of a table, or one of the wide scopes. It is comparable and tells nothing
// of the clear text without the stream's [Secret].
type Digest [16]byte

// Secret is the key of the digests. It is created with the stream and lives in
// NATS KV (rules §5.5).
type Secret [16]byte

// Print is the secret's fingerprint: equal for equal secrets, and of no use to
// find the secret.
func (s Secret) Print() [8]byte {
	d := NewHasher(s).sum([]byte("tidegate digest secret"))
	return [8]byte(d[:8])
}

// Hasher makes digests under one secret. It is a small immutable value.
type Hasher struct{ k0, k1 uint64 }

// NewHasher returns the hasher of a secret (SipHash-2-4 with 128 bits of
// output, Aumasson and Bernstein 2012).
func NewHasher(s Secret) Hasher {
	return Hasher{binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:])}
}

func (h Hasher) sum(p []byte) (d Digest) {
	lo, hi := siphash.Hash128(h.k0, h.k1, p)
	binary.LittleEndian.PutUint64(d[:8], lo)
	binary.LittleEndian.PutUint64(d[8:], hi)
	return d
}

// Scope kinds, the first byte of what is hashed, so that no two kinds meet.
const (
	kindEverything byte = iota + 1
	kindSchema
	kindTable
	kindAnyRow
	kindRow
	kindColumn
	kindGroup
)

// Everything is the all-rows scope of the whole cluster.
func (h Hasher) Everything() Digest { return h.sum([]byte{kindEverything}) }

// Schema is the all-rows scope of a schema, its name already folded.
func (h Hasher) Schema(schema string) Digest {
	var buf [nameBytes]byte
	return h.sum(append(append(buf[:0], kindSchema), schema...))
}

// nameBytes is room on the stack for two names of usual length; MySQL allows 64
// characters each.
const nameBytes = 136

// TableScopes holds the scopes of one table. Rows and group values hash on from
// the table's digest, so that names are hashed once for each table.
type TableScopes struct {
	AnyRow     Digest // what a scan of the table asks for; every row write writes it
	AllRows    Digest // wide: covers each row and group value of the table
	Schema     Digest // wide: all-rows of its schema
	Everything Digest // wide: all-rows of the cluster
	h          Hasher
}

// Table returns the scopes of a table; both names are already folded.
func (h Hasher) Table(schema, table string) TableScopes {
	var buf [nameBytes]byte
	b := append(buf[:0], kindTable)
	b = binary.AppendUvarint(b, uint64(len(schema)))
	b = append(b, schema...)
	b = append(b, table...)
	all := h.sum(b)
	return TableScopes{
		AnyRow: h.under(kindAnyRow, &all, nil), AllRows: all,
		Schema: h.Schema(schema), Everything: h.Everything(), h: h,
	}
}

// under hashes form below parent. Forms of usual length stay on the stack.
func (h Hasher) under(kind byte, parent *Digest, form []byte) Digest {
	var buf [128]byte
	b := append(buf[:0], kind)
	b = append(b, parent[:]...)
	b = append(b, form...)
	return h.sum(b)
}

// Row is the scope of the row whose primary key has this compare form.
func (t *TableScopes) Row(form []byte) Digest { return t.h.under(kindRow, &t.AllRows, form) }

// GroupScopes holds the scopes of one group column.
type GroupScopes struct {
	AllRows Digest // wide: covers each value of the column; also names the column
	h       Hasher
}

// Group returns the scopes of a group column, by its folded name ([FoldName]).
func (t *TableScopes) Group(column string) GroupScopes {
	var buf [nameBytes]byte
	return GroupScopes{AllRows: t.h.under(kindColumn, &t.AllRows, append(buf[:0], column...)), h: t.h}
}

// Value is the scope of the rows whose column has this compare form.
func (g *GroupScopes) Value(form []byte) Digest { return g.h.under(kindGroup, &g.AllRows, form) }
