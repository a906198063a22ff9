package key

import "fmt"

// Cover is all that decides about one key: its own scope and the wide scopes
// that cover it (rules §3.2). It is filled by [Definition.Cover] and may be used
// again and again; it is not for many at once.
type Cover struct {
	// Own is the row, the group value or, for any-row keys and for rows of
	// tables without usable keys, the any-row scope of the table. A group column
	// that folds wide has its all-rows scope here.
	Own Digest
	// Wide[:NWide] are the wide scopes that cover Own.
	Wide  [4]Digest
	NWide int
	// Table is the any-row scope that names the table.
	Table Digest
	// GroupColumn is the all-rows scope that names the group column; zero for
	// other keys.
	GroupColumn Digest
	// OneRow tells that Own stands for one row exactly, so that its newest
	// record alone may decide (rules §7).
	OneRow bool

	form, text []byte // kept between uses
}

// Cover folds a caller's key under the definition. dst is overwritten. An error
// is a [*ValueError] that names the column and says what would be right: a key
// that does not fit is never "no record" (rules §4.3).
//
// The definition must be the one of the key's table. It does not allocate when
// dst was used before for keys of that length.
func (d *Definition) Cover(h Hasher, k *Key, dst *Cover) error {
	if schema, table := k.FoldedNames(d.FoldNames); schema != d.Schema || table != d.Table {
		return &ValueError{Reason: fmt.Sprintf("table %s.%s is not %s.%s", k.Schema, k.Table, d.Schema, d.Table)}
	}
	t := d.tableScopes(h)
	// Field by field: a decision stores no pointer that it need not store.
	dst.Own, dst.Wide, dst.NWide = Digest{}, [len(dst.Wide)]Digest{}, 0
	dst.Table, dst.GroupColumn, dst.OneRow = t.AnyRow, Digest{}, false
	dst.form = dst.form[:0]
	dst.text = dst.text[:0]
	switch k.Kind {
	case KindAnyRow:
		dst.Own = t.AnyRow
		dst.wide(t.AllRows, t.Schema, t.Everything)
		return nil
	case KindRow:
		return d.coverRow(&t, k, dst)
	case KindGroup:
		return d.coverGroup(&t, k, dst)
	}
	return &ValueError{Reason: "names neither a row, nor a group value, nor any row"}
}

func (c *Cover) wide(scopes ...Digest) { c.NWide = copy(c.Wide[:], scopes) }

func (d *Definition) coverRow(t *TableScopes, k *Key, dst *Cover) error {
	if len(d.Primary) > 0 && len(k.Values) != len(d.Primary) || len(k.Values) == 0 {
		return &ValueError{Reason: d.arity(len(k.Values))}
	}
	exact, usable := true, len(d.Primary) > 0
	for i := range d.Primary {
		c := &d.Primary[i]
		fold := c.Fold()
		exact, usable = exact && fold == Exact, usable && fold != Wide
		if err := dst.fold(c, i, k.Values[i]); err != nil {
			return err
		}
	}
	dst.wide(t.AllRows, t.Schema, t.Everything)
	if !usable {
		dst.Own = t.AnyRow
		return nil
	}
	dst.Own, dst.OneRow = t.Row(dst.form), exact
	return nil
}

func (d *Definition) coverGroup(t *TableScopes, k *Key, dst *Cover) error {
	i, ok := d.Group(k.Column)
	if !ok {
		return &ValueError{Column: k.Column, Reason: "is not a group column of the table (keys: in the configuration)"}
	}
	if len(k.Values) != 1 {
		return &ValueError{Column: k.Column, Reason: fmt.Sprintf("a group key has one value, not %d", len(k.Values))}
	}
	c := &d.Groups[i]
	g := t.Group(c.resolve().name)
	dst.GroupColumn = g.AllRows
	if err := dst.fold(c, 0, k.Values[0]); err != nil {
		return err
	}
	if c.Fold() == Wide {
		dst.Own = g.AllRows
		dst.wide(t.AllRows, t.Schema, t.Everything)
		return nil
	}
	dst.Own = g.Value(dst.form)
	dst.wide(g.AllRows, t.AllRows, t.Schema, t.Everything)
	return nil
}

// fold appends the compare form of one value to c.form; a wide column's value is
// not read.
func (c *Cover) fold(col *Column, i int, t TextValue) error {
	v, reason := col.ParseValue(c.text[:0], t)
	if cap(v.Bytes) > cap(c.text) {
		c.text = v.Bytes[:0]
	}
	if reason != "" {
		return &ValueError{Column: col.Name, Index: i, Reason: reason}
	}
	if col.Fold() == Wide {
		return nil
	}
	form, err := col.AppendForm(c.form, v)
	if err != nil {
		return &ValueError{Column: col.Name, Index: i, Reason: err.Error()}
	}
	if cap(form) == cap(c.form) {
		c.form = c.form[:len(form)] // the same array
		return nil
	}
	c.form = form
	return nil
}

func (d *Definition) arity(got int) string {
	if len(d.Primary) == 0 {
		return "a row key has at least one value"
	}
	names := d.Primary[0].Name
	for i := range d.Primary[1:] {
		names += ", " + d.Primary[i+1].Name
	}
	return fmt.Sprintf("the primary key has %d columns (%s), the key %d values", len(d.Primary), names, got)
}
