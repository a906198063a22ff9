package testenv

import (
	"fmt"
	"strings"
)

// Accounts that every sandbox server has from its first moment. They are part
// of the initialised data folder, so that they cost no transaction: a fresh
// server's executed set is empty.
const (
	// RootUser has every privilege and no password, from the socket and from
	// 127.0.0.1.
	RootUser = "root"
	// TidegateUser is what Tidegate connects as; it has [TidegatePrivileges]
	// and nothing else.
	TidegateUser = "tidegate"
	// TidegatePassword is its password in the sandbox.
	TidegatePassword = "tide-pass"
	// AppUser is an application's account: rows and definitions of every
	// schema but MySQL's own.
	AppUser = "app"
	// AppPassword is its password.
	AppPassword = "app-pass"
	// ReplicationUser is what replicas connect as.
	ReplicationUser = "repl"
	// ReplicationPassword is its password.
	ReplicationPassword = "repl-pass"
	// AppDatabase is a schema that every server has from its first moment.
	AppDatabase = "app"
)

// Privilege is one privilege with the reason why Tidegate needs it.
type Privilege struct {
	Name string // as in GRANT
	On   string // "*.*" or a schema or table
	Why  string
}

// TidegatePrivileges are the privileges that Tidegate needs on every server,
// and all that it gets in the sandbox: what works here works with just these.
func TidegatePrivileges() []Privilege {
	return []Privilege{
		{"REPLICATION SLAVE", "*.*", "read the binlog as a replica does (COM_BINLOG_DUMP_GTID)"},
		{"REPLICATION CLIENT", "*.*", "SHOW BINARY LOGS, SHOW BINARY LOG STATUS and SHOW REPLICA STATUS: roles, epochs, purged intervals"},
		{"SELECT", "*.*", "table definitions (information_schema shows only tables one may read), the canary's rows, snapshots, and performance_schema (replication channels, Uptime, Threads_running)"},
	}
}

// TidegateGrants is the SQL that gives account (quoted, as in 'tidegate'@'%')
// its privileges, one statement for each scope.
func TidegateGrants(account string) []string {
	byScope := map[string][]string{}
	var order []string
	for _, p := range TidegatePrivileges() {
		if _, seen := byScope[p.On]; !seen {
			order = append(order, p.On)
		}
		byScope[p.On] = append(byScope[p.On], p.Name)
	}
	var out []string
	for _, on := range order {
		out = append(out, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(byScope[on], ", "), on, account))
	}
	return out
}

// accountsSQL runs once, while the data folder is initialised. mysqld reads an
// init file statement by statement, one a line.
func accountsSQL() string {
	statements := []string{
		"CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY ''",
		"GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION",
		fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", TidegateUser, TidegatePassword),
		fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", AppUser, AppPassword),
		fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, LOCK TABLES, EXECUTE, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, CREATE VIEW, SHOW VIEW, CREATE TEMPORARY TABLES, XA_RECOVER_ADMIN ON *.* TO '%s'@'%%'", AppUser),
		fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", ReplicationUser, ReplicationPassword),
		"CREATE DATABASE " + AppDatabase,
		fmt.Sprintf("GRANT REPLICATION SLAVE, BACKUP_ADMIN ON *.* TO '%s'@'%%'", ReplicationUser),
	}
	statements = append(statements, TidegateGrants(fmt.Sprintf("'%s'@'%%'", TidegateUser))...)
	return strings.Join(statements, ";\n") + ";\n"
}
