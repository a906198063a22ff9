package key

import "strings"

// FoldName folds a schema, table or column name to the form in which MySQL
// compares names without case: column names always, schema and table names when
// lower_case_table_names is not 0. It does not allocate for a name that is
// folded already.
//
// Both sides of a comparison must come from this function: for a few letters
// that newer Unicode versions brought, it goes further than MySQL's own table.
// That can only make a name unknown, never make two tables' scopes differ that
// MySQL takes for one.
func FoldName(name string) string { return strings.ToLower(name) }

// FoldedNames returns the key's schema and table name as a definition carries
// them; fold is the cluster's FoldNames.
func (k *Key) FoldedNames(fold bool) (schema, table string) {
	if fold {
		return FoldName(k.Schema), FoldName(k.Table)
	}
	return k.Schema, k.Table
}
