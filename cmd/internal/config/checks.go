package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tidegate/router/serve"
)

// validName tells whether s can be part of stream names and metrics labels.
func validName(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// checkAddr says what is wrong with a host:port, or nothing.
func checkAddr(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("%q is no host:port", s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Sprintf("%q: the port must be a number from 0 to 65535", s)
	}
	if strings.ContainsAny(host, " /") {
		return fmt.Sprintf("%q: %q is no host name", s, host)
	}
	return ""
}

// maxSocketPath is what a Unix socket's address can hold, less its final zero.
const maxSocketPath = 107

// isSocket tells whether the address of a server is the path of a Unix socket.
func isSocket(addr string) bool { return strings.HasPrefix(addr, "/") }

// checkServerAddr says what is wrong with the address of a server, or nothing.
func checkServerAddr(s string) string {
	switch {
	case isSocket(s) && len(s) > maxSocketPath:
		return fmt.Sprintf("%q: the path of a Unix socket may have %d bytes at most, this has %d", s, maxSocketPath, len(s))
	case isSocket(s):
		return ""
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		return fmt.Sprintf("%q is no host:port, and no absolute path of a Unix socket", s)
	}
	return checkAddr(s)
}

// IsLoopback tells whether a listen address can be reached from this machine
// alone. A name other than localhost counts as reachable from elsewhere.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (c *Config) checkServers(add func(path, message string)) {
	if len(c.Servers) == 0 {
		add("servers", "at least one server is needed")
	}
	names, addrs := map[string]int{}, map[string]int{}
	for i, s := range c.Servers {
		at := fmt.Sprintf("servers[%d]", i)
		if s.Name != "" && !validName(s.Name) {
			add(at+".name", fmt.Sprintf("%q may hold letters, digits, - and _ only, 64 at most", s.Name))
		}
		if j, dup := names[s.Name]; dup && s.Name != "" {
			add(at+".name", fmt.Sprintf("%q is the name of servers[%d] too", s.Name, j))
		}
		names[s.Name] = i
		for _, a := range []struct{ key, value string }{{".addr", s.Addr}, {".app_addr", s.AppAddr}} {
			if why := checkServerAddr(a.value); a.value != "" && why != "" {
				add(at+a.key, why)
			}
		}
		if isSocket(s.Addr) && s.AppAddr == "" {
			add(at+".app_addr", "addr is a Unix socket, which is no address for applications on other hosts: give the host:port that they use (or the path, if all of them run here)")
		}
		if isSocket(s.Addr) && s.TLS.Enabled {
			add(at+".tls.enabled", "addr is a Unix socket: nothing leaves the host, and it has no name that a certificate could hold")
		}
		if j, dup := addrs[s.Addr]; dup && s.Addr != "" {
			add(at+".addr", fmt.Sprintf("%q is the address of servers[%d] too", s.Addr, j))
		}
		addrs[s.Addr] = i
		checkTLS(at+".tls", &s.TLS, add)
		if s.Password != "" && s.PasswordFile != "" {
			add(at+".password_file", "password is given too: name one of them")
		}
	}
}

// checkTLS checks the client's side of TLS.
func checkTLS(at string, t *TLS, add func(path, message string)) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		add(at, "cert_file and key_file go together")
	}
	if t.Verify == "ca" && t.CAFile == "" {
		add(at+".verify", "ca needs ca_file: any certificate of a public authority would do otherwise")
	}
	if t.Verify == "ca" && t.ServerName != "" {
		add(at+".server_name", "is not looked at with verify: ca; leave one of them out")
	}
	if !t.Enabled && (t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "" || t.Verify == "ca") {
		add(at+".enabled", "is false, and other keys of TLS are given: the connection would be in the clear")
	}
}

// checkNATS finds what the streams refuse only once they are opened.
func (c *Config) checkNATS(add func(path, message string)) {
	n := &c.NATS
	if n.Replicas == 2 {
		add("nats.replicas", "must be 1 or 3")
	}
	if n.URL != "" {
		if why := checkNATSURL(n.URL); why != "" {
			add("nats.url", why)
		}
		return
	}
	if n.Replicas > 1 {
		add("nats.replicas", "more than 1 needs an external NATS cluster: set nats.url")
	}
	for _, f := range []struct {
		path  string
		given bool
	}{{"nats.user", n.User != ""}, {"nats.password", n.Password.Reveal() != ""}, {"nats.creds_file", n.CredsFile != ""}, {"nats.tls", n.TLS.Enabled}} {
		if f.given {
			add(f.path, "is for an external NATS: set nats.url")
		}
	}
}

// checkNATSURL says what is wrong with a list of NATS servers, or nothing.
func checkNATSURL(list string) string {
	websocket := map[bool]bool{}
	for server := range strings.SplitSeq(list, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		switch {
		case err != nil || u.Hostname() == "" || strings.ContainsAny(server, " \t"):
			return fmt.Sprintf("%q is no nats://HOST:PORT, nor several of them with commas", list)
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			return fmt.Sprintf("%q: NATS is reached by nats, tls, ws or wss", server)
		}
		if n, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || n < 1 || n > 65535) {
			return fmt.Sprintf("%q: the port must be a number from 1 to 65535", server)
		}
		websocket[strings.HasPrefix(u.Scheme, "ws")] = true
	}
	if len(websocket) > 1 {
		return fmt.Sprintf("%q: servers that are reached by ws or wss, and others, do not go together", list)
	}
	return ""
}

func (c *Config) checkListen(add func(path, message string)) {
	taken := map[string]string{} // key by address
	for _, l := range []struct {
		path, addr, none string // none is how no listener is written
		local            string // what is for this machine alone; empty: others may connect, with auth
	}{
		{"listen.http", c.Listen.HTTP, "off", ""},
		{"listen.resp", c.Listen.RESP, "off", ""},
		{"listen.pprof", c.Listen.Pprof, "", "profiles"},
		{"listen.metrics", c.Listen.Metrics, "", "metrics without auth"},
	} {
		if l.addr == l.none {
			continue
		}
		if why := checkAddr(l.addr); why != "" {
			if l.none != "" {
				why += fmt.Sprintf("; or %q", l.none)
			}
			add(l.path, why)
			continue
		}
		switch {
		case IsLoopback(l.addr):
		case l.local != "":
			add(l.path, fmt.Sprintf("%q is not on loopback; %s are for this machine only", l.addr, l.local))
		case len(c.Auth.Tokens)+len(c.Auth.Clients) == 0:
			add(l.path, fmt.Sprintf("%q is not on loopback, so auth is needed: add auth.tokens or auth.clients", l.addr))
		}
		if other := taken[l.addr]; other != "" && !strings.HasSuffix(l.addr, ":0") {
			add(l.path, fmt.Sprintf("%q is %s too", l.addr, other))
		}
		taken[l.addr] = l.path
	}
	t := c.Listen.TLS
	if (t.CertFile == "") != (t.KeyFile == "") {
		add("listen.tls", "cert_file and key_file go together")
	}
	switch {
	case t.ClientCAFile == "":
	case t.CertFile == "":
		add("listen.tls.client_ca_file", "needs cert_file and key_file too")
	case len(c.Auth.Clients) == 0:
		add("listen.tls.client_ca_file", "is of no use without auth.clients, which say whose certificate may do what")
	}
}

func (c *Config) checkAuth(add func(path, message string)) {
	const list = "roles are read, write-session, operate, rows"
	roles := func(at string, names []string) {
		if len(names) == 0 {
			add(at+".roles", "is empty, and a caller without a role may do nothing; "+list)
		}
		for _, r := range names {
			if _, err := serve.ParseRole(r); err != nil {
				add(at+".roles", fmt.Sprintf("%q is no role; %s", r, list))
			}
		}
	}
	for i, t := range c.Auth.Tokens {
		at := fmt.Sprintf("auth.tokens[%d]", i)
		roles(at, t.Roles)
		switch {
		case t.Token == "" && t.TokenFile == "":
			add(at, "token or token_file is needed")
		case t.Token != "" && t.TokenFile != "":
			add(at+".token_file", "token is given too: name one of them")
		}
	}
	names := map[string]int{}
	for i, cl := range c.Auth.Clients {
		at := fmt.Sprintf("auth.clients[%d]", i)
		roles(at, cl.Roles)
		if j, dup := names[cl.Name]; dup && cl.Name != "" {
			add(at+".name", fmt.Sprintf("%q is the name of auth.clients[%d] too", cl.Name, j))
		}
		names[cl.Name] = i
	}
	if len(c.Auth.Clients) > 0 && c.Listen.TLS.ClientCAFile == "" {
		add("auth.clients", "needs listen.tls.client_ca_file")
	}
}

// checkTokens looks at the tokens once those in files are read.
func (c *Config) checkTokens(add func(path, message string)) {
	first := map[Secret]int{}
	for i, t := range c.Auth.Tokens {
		at := fmt.Sprintf("auth.tokens[%d].token", i)
		if t.TokenFile != "" {
			at += "_file"
		}
		switch j, dup := first[t.Token]; {
		case t.Token == "":
			if t.TokenFile != "" {
				add(at, "the token is empty")
			}
			continue
		case len(t.Token) < serve.MinTokenBytes:
			add(at, fmt.Sprintf("the token is shorter than %d bytes, and could be guessed", serve.MinTokenBytes))
		case dup:
			add(at, fmt.Sprintf("the token is that of auth.tokens[%d] too", j))
		}
		first[t.Token] = i
	}
}

func checkGroupColumns(table string, columns []string, add func(path, message string)) {
	path := "keys." + table
	if schema, name, ok := strings.Cut(table, "."); !ok || schema == "" || name == "" {
		add(path, fmt.Sprintf("%q is no schema.table", table))
	}
	if len(columns) == 0 {
		add(path, "no columns are named")
	}
	seen := map[string]bool{}
	for _, c := range columns {
		if c == "" || seen[strings.ToLower(c)] {
			add(path, fmt.Sprintf("column %q is empty or named twice", c))
		}
		seen[strings.ToLower(c)] = true
	}
}
