package testenv

// smallArgs keep a server near 225 MB instead of 550 MB, and its start at half
// the time. The performance schema stays on, since replication channels,
// threads and global status are read from it; what it would count and remember
// has no room. A test that needs more of it says so in Options.Args, which come
// later and win. Sizes that some version does not know are "loose": that
// version ignores them.
func smallArgs() []string {
	args := []string{
		"--innodb-buffer-pool-size=67108864",
		"--innodb-buffer-pool-load-at-startup=OFF",
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-redo-log-capacity=67108864",
		"--innodb-log-buffer-size=4194304",
		doublewritePages,
		"--table-open-cache=400",
		"--table-definition-cache=400",
		"--host-cache-size=0",
		"--performance-schema-instrument=%=OFF",
	}
	for _, name := range performanceSchemaSizes() {
		args = append(args, "--loose-performance-schema-"+name+"=0")
	}
	return args
}

// doublewritePages keeps the doublewrite files small: mysqld reads them whole
// at each start.
const doublewritePages = "--innodb-doublewrite-pages=16"

// performanceSchemaSizes are the buffers of the performance schema that the
// sandbox has no use for. With the defaults they take 250 MB and a second of
// processor time at each start.
func performanceSchemaSizes() []string {
	return []string{
		"accounts-size", "digests-size", "error-size",
		"events-stages-history-long-size", "events-stages-history-size",
		"events-statements-history-long-size", "events-statements-history-size",
		"events-transactions-history-long-size", "events-transactions-history-size",
		"events-waits-history-long-size", "events-waits-history-size",
		"hosts-size", "max-cond-classes", "max-cond-instances", "max-digest-length",
		"max-file-classes", "max-file-handles", "max-file-instances", "max-index-stat",
		"max-memory-classes", "max-metadata-locks", "max-meter-classes", "max-metric-classes",
		"max-mutex-classes", "max-mutex-instances", "max-prepared-statements-instances",
		"max-program-instances", "max-rwlock-classes", "max-rwlock-instances",
		"max-socket-classes", "max-socket-instances", "max-sql-text-length",
		"max-stage-classes", "max-statement-classes", "max-table-handles",
		"max-table-instances", "max-table-lock-stat", "session-connect-attrs-size",
		"setup-actors-size", "setup-objects-size", "users-size",
	}
}
