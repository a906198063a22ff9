package binlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Numbers of MySQL's errors that a monitor tells apart. Everything else is
// retried.
const (
	errAccessDenied   = 1045 // wrong user or password
	errDBAccessDenied = 1044
	errTableDenied    = 1142
	errColumnDenied   = 1143
	errNeedsPrivilege = 1227
	errNoPrivilege    = 3530 // a role or dynamic privilege is missing
	errBinlogRead     = 1220
	errNoBinlog       = 1381
	errUnknownVar     = 1193
	errGTIDModeOff    = 1768 // a wait for GTIDs while gtid_mode is OFF
	errSyntax         = 1064
)

// serverVersion is a version that can be compared.
type serverVersion struct{ major, minor, patch int }

// parseVersion reads "8.0.36-debug" and the like.
func parseVersion(s string) (v serverVersion, ok bool) {
	head, _, _ := strings.Cut(s, "-")
	parts := strings.Split(head, ".")
	if len(parts) < 3 {
		return v, false
	}
	for i, p := range []*int{&v.major, &v.minor, &v.patch} {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return serverVersion{}, false
		}
		*p = n
	}
	return v, true
}

func (v serverVersion) atLeast(major, minor, patch int) bool {
	if v.major != major {
		return v.major > major
	}
	if v.minor != minor {
		return v.minor > minor
	}
	return v.patch >= patch
}

// refuseVersion refuses what is not MySQL 8.0 or newer. MariaDB's GTIDs are
// other things under the same name, and its replicas prove nothing by them.
func refuseVersion(server, version, comment string) error {
	if strings.Contains(strings.ToLower(version+" "+comment), "mariadb") {
		return &RefusedError{
			Server: server, Reason: "this is MariaDB (" + version + "), whose GTIDs do not prove what a replica shows; Tidegate follows MySQL 8.0, 8.4 and 9.x",
		}
	}
	v, ok := parseVersion(version)
	if !ok {
		return &RefusedError{Server: server, Reason: fmt.Sprintf("version %q is not understood; Tidegate follows MySQL 8.0, 8.4 and 9.x", version)}
	}
	if !v.atLeast(8, 0, 0) {
		return &RefusedError{Server: server, Reason: "version " + version + " is too old; Tidegate follows MySQL 8.0, 8.4 and 9.x"}
	}
	return nil
}

// grantFor is the SQL that gives an account all that Tidegate needs.
func grantFor(user string) string {
	return fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO '%s'@'%%'", escape(user))
}

// refuseRights turns a refusal of the server into one that names the GRANT, and
// leaves other errors as they are.
func refuseRights(cfg *ServerConfig, doing string, err error) error {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		switch my.Number {
		case errDBAccessDenied, errTableDenied, errColumnDenied, errNeedsPrivilege, errNoPrivilege:
			return &RefusedError{
				Server: cfg.Name, Reason: fmt.Sprintf("account %s may not %s it (%s)", cfg.User, strings.TrimSuffix(doing, " of"), my.Message),
				Mend: grantFor(cfg.User),
			}
		}
	}
	return fmt.Errorf("%s %s: %w", doing, cfg, err)
}
