package key

// collationEntry says what the folding of one collation is worth.
type collationEntry struct {
	name  string
	id    uint16
	fold  FoldKind
	noPad bool
}

// collationTable lists the collations that were held against a server, sorted by
// name; one that is not listed folds wide.
var collationTable = []collationEntry{
	{"ascii_bin", 65, Exact, false},
	{"ascii_general_ci", 11, Exact, false},
	{"utf8mb4_0900_ai_ci", 255, Exact, true},
	{"utf8mb4_0900_bin", 309, Exact, true},
	{"utf8mb4_bin", 46, Exact, false},
	{"utf8mb4_general_ci", 45, Exact, false},
}
