package binlog

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"tidegate/cdc/key"
)

// CanaryRow is one row as a server showed it: what is compared between a
// replica that was answered yes and the primary. The contents themselves are
// not kept.
type CanaryRow struct {
	Found  bool
	Digest uint64 // of all columns, by name and value
	// Columns are the digests of the columns by name, to say what differs.
	Columns map[string]uint64
}

// Equal tells whether two servers showed the same.
func (r CanaryRow) Equal(o CanaryRow) bool { return r.Found == o.Found && r.Digest == o.Digest }

// Differs names the columns that differ, or which side has no row.
func (r CanaryRow) Differs(o CanaryRow) string {
	switch {
	case r.Found && !o.Found:
		return "no row on the other side"
	case !r.Found && o.Found:
		return "no row on this side"
	}
	var names []string
	for n, d := range r.Columns {
		if e, ok := o.Columns[n]; !ok || e != d {
			names = append(names, n)
		}
	}
	for n := range o.Columns {
		if _, ok := r.Columns[n]; !ok {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

// ErrNotOneRow is what ReadCanary returns for a key that does not name exactly
// one row: group keys, table keys, and keys with NULL.
var ErrNotOneRow = errors.New("the key does not name one row")

// ReadCanary reads the row of a clear key on one server, in a snapshot of its
// own. def is the definition with which the key was folded. It blocks for as
// long as ctx; it may be called by many at once.
//
// The comparison is the caller's: read the replica first, then the primary, and
// count a difference only when the index has no newer write of the key than the
// yes knew of.
func ReadCanary(ctx context.Context, db *sql.DB, def *key.Definition, k key.Key) (CanaryRow, error) {
	query, args, err := canarySQL(def, k)
	if err != nil {
		return CanaryRow{}, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return CanaryRow{}, fmt.Errorf("read %s: %w", k, err)
	}
	out, err := readCanary(ctx, conn, query, args)
	if err = errors.Join(err, conn.Close()); err != nil {
		return CanaryRow{}, fmt.Errorf("read %s: %w", k, err)
	}
	return out, nil
}

func readCanary(ctx context.Context, conn *sql.Conn, query string, args []any) (CanaryRow, error) {
	// Keys print TIMESTAMP in UTC (rules §4.2), and both servers must print alike.
	if _, err := conn.ExecContext(ctx, "SET SESSION time_zone = '+00:00', autocommit = 1"); err != nil {
		return CanaryRow{}, err
	}
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return CanaryRow{}, err
	}
	out, err := scanCanary(rows)
	return out, errors.Join(err, rows.Close())
}

func scanCanary(rows *sql.Rows) (CanaryRow, error) {
	var out CanaryRow
	names, err := rows.Columns()
	if err != nil {
		return out, err
	}
	raw := make([]sql.RawBytes, len(names))
	ptrs := make([]any, len(names))
	for i := range raw {
		ptrs[i] = &raw[i]
	}
	for n := 0; rows.Next(); n++ {
		if n > 0 {
			return out, ErrNotOneRow
		}
		if err := rows.Scan(ptrs...); err != nil {
			return out, err
		}
		out = digestRow(names, raw)
	}
	return out, rows.Err()
}

// digestRow keeps NULL and empty apart, and columns in any order alike.
func digestRow(names []string, raw []sql.RawBytes) CanaryRow {
	out := CanaryRow{Found: true, Columns: make(map[string]uint64, len(names))}
	for i, n := range names {
		h := fnv.New64a()
		// Writes to a hash do not fail.
		_, _ = h.Write([]byte(n))
		if raw[i] == nil {
			_, _ = h.Write([]byte{0})
		} else {
			_, _ = h.Write([]byte{1})
			_, _ = h.Write(raw[i])
		}
		out.Columns[n] = h.Sum64()
		out.Digest += h.Sum64()
	}
	return out
}

// canarySQL compares as the column does, so that a folded value finds its row.
// One row too many is asked for, which shows that the key is not one row.
func canarySQL(def *key.Definition, k key.Key) (string, []any, error) {
	if k.Kind != key.KindRow || len(k.Values) != len(def.Primary) || len(k.Values) == 0 {
		return "", nil, ErrNotOneRow
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT * FROM %s.%s WHERE ", quoteName(def.Schema), quoteName(def.Table))
	args := make([]any, 0, len(k.Values))
	for i, v := range k.Values {
		if v.Null {
			return "", nil, ErrNotOneRow
		}
		if i > 0 {
			b.WriteString(" AND ")
		}
		fmt.Fprintf(&b, "%s = ?", quoteName(def.Primary[i].Name))
		arg, err := canaryValue(&def.Primary[i], v)
		if err != nil {
			return "", nil, fmt.Errorf("read %s: %w", k, err)
		}
		args = append(args, arg)
	}
	b.WriteString(" LIMIT 2")
	return b.String(), args, nil
}

// canaryValue hands binary values over as bytes, and numbers as numbers, so that
// the server can use the index; everything else is text, which it compares
// under the column's own type and collation.
func canaryValue(c *key.Column, v key.TextValue) (any, error) {
	switch c.Type {
	case key.TypeBinary, key.TypeVarbinary:
		digits, ok := strings.CutPrefix(v.Text, "0x")
		if !ok {
			return nil, fmt.Errorf("column %s: %q is not 0x and hexadecimal digits", c.Name, v.Text)
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		return b, nil
	case key.TypeInt, key.TypeBit:
		if c.Unsigned || c.Type == key.TypeBit {
			n, err := strconv.ParseUint(v.Text, 10, 64)
			return n, err
		}
		n, err := strconv.ParseInt(v.Text, 10, 64)
		return n, err
	}
	return v.Text, nil
}
