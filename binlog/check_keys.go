package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tidegate/cdc/key"
)

// ReadTables looks up on a primary the tables under `keys:` of the configuration,
// printed schema.table and their group columns, so that [CompareServers] can tell
// which are not there; a look-up that fails is a finding of its own. It does nothing
// for other servers. Not to be called while the inspection is judged.
func (in *Inspection) ReadTables(ctx context.Context, db *sql.DB, keys map[string][]string) {
	if len(keys) > 0 && in.primary() {
		in.groups, in.looked, in.lookErr = in.lookUp(ctx, db, keys)
	}
}

func (in *Inspection) lookUp(ctx context.Context, db *sql.DB, keys map[string][]string) (map[tableName][]string, *lookupResult, error) {
	names := lookupNames{fold: in.vars["lower_case_table_names"] != "0", groups: map[tableName][]string{}}
	var ask lookupRequest
	for printed, columns := range keys {
		schema, table, err := key.ParseTable(printed)
		if err != nil {
			return nil, nil, fmt.Errorf("%q: %w", printed, err)
		}
		n := names.folded(schema, table)
		names.groups[n] = append(names.groups[n], columns...)
		ask.tables = append(ask.tables, n)
	}
	looked, err := (&sqlLookup{db: db, server: in.cfg}).look(ctx, names, ask)
	if err != nil {
		return nil, nil, err
	}
	return names.groups, looked, nil
}

// checkGroups finds what `keys:` names and the primary does not have.
func (in *Inspection) checkGroups(f *findings) {
	if in.lookErr != nil {
		f.add(Warning, "keys: could not be looked up: "+in.lookErr.Error(), "whether the tables and group columns under keys: are there is not known; tidegate run and tail refuse to start for a column that is not",
			"check again")
	}
	if in.looked == nil {
		return
	}
	for _, n := range missingTables(in.groups, in.looked) {
		f.add(Warning, "keys: there is no table "+n.String(), "its group columns can't be asked for: answers are unknown_table until it is created, and stay so when the name is mistyped",
			"correct keys: in the configuration, or create the table")
	}
	err := (&registry{groups: in.groups}).checkGroups(in.looked)
	for _, e := range joined(err) {
		f.add(Broken, e.Error(), "tidegate run and tail refuse to start with it", "correct keys: in the configuration, or add the column")
	}
}

// joined takes apart what errors.Join put together.
func joined(err error) []error {
	var all interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &all):
		return all.Unwrap()
	}
	return []error{err}
}

// missingTables are the configured tables that a look-up of them did not find,
// in order.
func missingTables(groups map[tableName][]string, r *lookupResult) []tableName {
	var out []tableName
	for n := range groups {
		if r.request.covers(n) && r.tables[n] == nil {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b tableName) int { return strings.Compare(a.String(), b.String()) })
	return out
}
