package serve

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"tidegate/cdc/event"
	"tidegate/router"
)

// str reads an argument without a copy. It is valid until the buffer is filled
// again; the router keeps nothing of a request.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// is compares an argument with a word in capitals, without case.
func is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// command answers one command.
func (c *respConn) command(args [][]byte) {
	name := args[0]
	switch {
	case is(name, "SERVE"):
		if c.allowed(RoleRead) {
			c.question(kindServe, args)
		}
	case is(name, "ROUTE"):
		if c.allowed(RoleRead) {
			c.question(kindRoute, args)
		}
	case is(name, "SERVERS"):
		if c.allowed(RoleRead) {
			c.servers(args)
		}
	case is(name, "PING"):
		c.ping(args)
	case is(name, "HELLO"):
		c.hello(args)
	case is(name, "AUTH"):
		c.auth(args)
	case is(name, "QUIT"):
		c.w.simple("OK")
		c.quit = true
	case is(name, "CLIENT"):
		c.client(args)
	case is(name, "SELECT"):
		if len(args) != 2 {
			c.wrongArgs("select")
		} else if str(args[1]) != "0" {
			c.fail(bad(CodeBadField, "", -1, "there is one database, 0"))
		} else {
			c.w.simple("OK")
		}
	case is(name, "COMMAND"):
		c.commands(args)
	case is(name, "INFO"):
		c.info()
	default:
		c.fail(bad(CodeUnknownCommand, "", -1, "there is no command "+strconv.QuoteToASCII(string(name[:min(len(name), 64)]))))
	}
}

// allowed checks the caller's role and answers for itself when it is not
// enough, in the words that Redis clients know.
func (c *respConn) allowed(need Role) bool {
	switch {
	case c.s.o.Auth == nil:
		return true
	case c.who == nil:
		c.s.counters.respErrors.Add(1)
		c.w.raw("-NOAUTH Authentication required.\r\n")
		return false
	case c.who.Roles&need == 0:
		c.s.counters.respErrors.Add(1)
		c.w.raw("-NOPERM this caller lacks the role for that\r\n")
		return false
	}
	return true
}

// question answers SERVE and ROUTE.
func (c *respConn) question(k kind, args [][]byte) {
	a := c.a
	a.reset(k)
	a.req.Explain = false // the answer has no place for it
	if err := a.respFields(args); err != nil {
		c.fail(err)
		return
	}
	if err := c.s.decide(c.ctx, a); err != nil {
		c.fail(err)
		return
	}
	ans := &a.ans
	c.w.array(7)
	if k == kindServe {
		c.w.flag(ans.Yes)
		c.w.bulk(ans.Reason.String())
		c.w.textOrNull(ans.Otherwise.String())
	} else {
		c.w.bulk(ans.Server)
		c.w.bulk(roleName(ans.Role))
		c.w.bulk(ans.Reason.String())
	}
	c.w.null() // token
	c.w.flag(ans.Stale)
	c.identity(ans)
}

// identity writes server_uuid and epoch.
func (c *respConn) identity(ans *router.Answer) {
	if ans.UUID.IsZero() {
		c.w.null()
	} else {
		c.w.raw("$36\r\n")
		c.w.b = appendUUID(c.w.b, &ans.UUID)
		c.w.crlf()
	}
	c.epoch(ans.Epoch)
}

func (c *respConn) epoch(e event.Epoch) {
	if e == 0 {
		c.w.null()
		return
	}
	var buf [20]byte
	n := strconv.AppendUint(buf[:0], uint64(e), 10)
	c.w.head('$', len(n))
	c.w.b = append(c.w.b, n...)
	c.w.crlf()
}

// respFields takes SERVE r [options] and ROUTE [options].
func (a *ask) respFields(args [][]byte) *wireError {
	i := 1
	if a.kind == kindServe {
		if len(args) < 2 {
			return bad(CodeBadField, "replica", -1, "it is missing")
		}
		if _, err := a.text("replica", str(args[1])); err != nil {
			return err
		}
		i = 2
	}
	for i < len(args) {
		n, err := a.respOption(args[i], args[i+1:])
		if err != nil {
			return err
		}
		i += 1 + n
	}
	return nil
}

// respOption takes one option and returns how many arguments it used.
func (a *ask) respOption(name []byte, rest [][]byte) (int, *wireError) {
	one := func(f func(value string) *wireError) (int, *wireError) {
		if len(rest) == 0 {
			return 0, bad(CodeBadField, strings.ToUpper(string(name)), -1, "its value is missing")
		}
		return 1, f(str(rest[0]))
	}
	text := func(field string) (int, *wireError) {
		return one(func(v string) *wireError { _, err := a.text(field, v); return err })
	}
	switch {
	case is(name, "KEYS"):
		return a.respList("KEYS", gaveKeys, rest, a.key)
	case is(name, "FLOOR"):
		return text("floor")
	case is(name, "LEVEL"):
		return text("level")
	case is(name, "CLASS"):
		return text("class")
	case is(name, "MAXSTALE"):
		return one(func(v string) *wireError { return a.staleness("MAXSTALE", v) })
	case is(name, "EXCLUDE") && a.kind == kindRoute:
		return a.respList("EXCLUDE", gaveExclude, rest, func(v string) *wireError {
			if len(a.exclude) == maxExclude {
				return fail(http.StatusRequestEntityTooLarge, CodeTooLarge, "EXCLUDE", fmt.Sprintf("at most %d servers are allowed", maxExclude))
			}
			a.exclude = append(a.exclude, v)
			return nil
		})
	case is(name, "INTX") && a.kind == kindRoute:
		a.req.InTransaction = true
		return 0, a.once(gaveInTransaction, "INTX")
	}
	return 0, bad(CodeUnknownField, strconv.QuoteToASCII(string(name[:min(len(name), 64)])), -1, "there is no such option here")
}

// respList takes n and n values.
func (a *ask) respList(field string, bit uint32, rest [][]byte, take func(string) *wireError) (int, *wireError) {
	if err := a.once(bit, field); err != nil {
		return 0, err
	}
	if len(rest) == 0 {
		return 0, bad(CodeBadField, field, -1, "its number is missing")
	}
	n, err := strconv.Atoi(str(rest[0]))
	if err != nil || n < 0 {
		return 0, bad(CodeBadField, field, 0, "its number is not one")
	}
	if n > len(rest)-1 {
		return 0, bad(CodeBadField, field, 0, fmt.Sprintf("%d values are announced and %d arguments follow", n, len(rest)-1))
	}
	for _, v := range rest[1 : 1+n] {
		if err := take(str(v)); err != nil {
			return 0, err
		}
	}
	return 1 + n, nil
}

// servers answers SERVERS: for each server an array of name, role, eligible,
// reason, addr, staleness_ms, server_uuid, epoch.
func (c *respConn) servers(args [][]byte) {
	if len(args) != 1 {
		c.wrongArgs("servers")
		return
	}
	rep := c.s.o.Router.Report()
	c.w.array(len(rep.Servers))
	for i := range rep.Servers {
		v := &rep.Servers[i]
		c.w.array(8)
		c.w.bulk(v.Name)
		c.w.bulk(roleName(v.Role))
		c.w.flag(v.Eligible)
		c.w.textOrNull(v.Reason.String())
		c.w.textOrNull(v.Addr)
		c.w.millis(v.Staleness)
		c.identity(&router.Answer{UUID: v.UUID, Epoch: v.Epoch})
	}
}

func (c *respConn) ping(args [][]byte) {
	switch len(args) {
	case 1:
		c.w.simple("PONG")
	case 2:
		c.w.bulk(str(args[1]))
	default:
		c.wrongArgs("ping")
	}
}

// maxNameBytes bounds a connection's name, which is kept for as long as the
// connection and may be given by somebody who is not known yet.
const maxNameBytes = 256

func (c *respConn) nameTooLong() {
	c.fail(fail(http.StatusRequestEntityTooLarge, CodeTooLarge, "SETNAME", fmt.Sprintf("a name has at most %d bytes", maxNameBytes)))
}

// hello answers HELLO [proto [AUTH user token] [SETNAME name]].
func (c *respConn) hello(args [][]byte) {
	proto, who, name := c.w.proto, c.who, c.name
	if len(args) > 1 {
		switch str(args[1]) {
		case "2":
			proto = 2
		case "3":
			proto = 3
		default:
			c.s.counters.respErrors.Add(1)
			c.w.raw("-NOPROTO unsupported protocol version\r\n")
			return
		}
	}
	for i := 2; i < len(args); {
		switch {
		case is(args[i], "AUTH") && i+2 < len(args):
			if who = c.known(str(args[i+1]), str(args[i+2])); who == nil && c.s.o.Auth != nil {
				c.wrongPass()
				return
			}
			i += 3
		case is(args[i], "SETNAME") && i+1 < len(args):
			if len(args[i+1]) > maxNameBytes {
				c.nameTooLong()
				return
			}
			name = string(args[i+1])
			i += 2
		default:
			c.fail(bad(CodeBadField, "", -1, "HELLO takes AUTH user token and SETNAME name"))
			return
		}
	}
	if c.s.o.Auth != nil && who == nil {
		c.s.counters.respErrors.Add(1)
		c.w.raw("-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used\r\n")
		return
	}
	c.w.proto, c.who, c.name = proto, who, name
	c.w.pairs(7)
	for _, kv := range [][2]string{{"server", "tidegate"}, {"version", c.s.o.Version}} {
		c.w.bulk(kv[0])
		c.w.bulk(kv[1])
	}
	c.w.bulk("proto")
	c.w.integer(proto)
	c.w.bulk("id")
	c.w.integer(int(c.id))
	c.w.bulk("mode")
	c.w.bulk("standalone")
	c.w.bulk("role")
	c.w.bulk("master")
	c.w.bulk("modules")
	c.w.array(0)
}

// auth answers AUTH token and AUTH user token.
func (c *respConn) auth(args [][]byte) {
	user := "default"
	switch len(args) {
	case 2:
	case 3:
		user = str(args[1])
	default:
		c.wrongArgs("auth")
		return
	}
	if c.s.o.Auth == nil {
		c.fail(bad(CodeBadField, "", -1, "this server has no auth; AUTH is not needed"))
		return
	}
	who := c.known(user, str(args[len(args)-1]))
	if who == nil {
		c.wrongPass()
		return
	}
	c.who = who
	c.w.simple("OK")
}

// known finds who carries a token; the user is the credential's name, or
// default.
func (c *respConn) known(user, token string) *Credential {
	if c.s.o.Auth == nil {
		return nil
	}
	who := c.s.o.Auth.token(token)
	if who != nil && user != "default" && user != who.Name {
		return nil
	}
	return who
}

func (c *respConn) wrongPass() {
	c.s.counters.respErrors.Add(1)
	c.w.raw("-WRONGPASS invalid username-password pair\r\n")
}

// client answers what client libraries say of themselves.
func (c *respConn) client(args [][]byte) {
	if len(args) < 2 {
		c.wrongArgs("client")
		return
	}
	switch sub := args[1]; {
	case is(sub, "SETNAME") && len(args) == 3 && len(args[2]) > maxNameBytes:
		c.nameTooLong()
	case is(sub, "SETNAME") && len(args) == 3:
		c.name = string(args[2])
		c.w.simple("OK")
	case is(sub, "GETNAME") && len(args) == 2:
		c.w.textOrNull(c.name)
	case is(sub, "SETINFO") && len(args) == 4:
		c.w.simple("OK")
	case is(sub, "ID") && len(args) == 2:
		c.w.integer(int(c.id))
	default:
		c.fail(bad(CodeUnknownCommand, "", -1, "CLIENT has SETNAME, GETNAME, SETINFO and ID"))
	}
}

// knownCommands are the commands there are, for COMMAND and the reference.
var knownCommands = []struct {
	name  string
	arity int
}{
	{"serve", -2},
	{"route", -1},
	{"servers", 1},
	{"ping", -1},
	{"hello", -1},
	{"auth", -2},
	{"client", -2},
	{"command", -1},
	{"info", -1},
	{"select", 2},
	{"quit", 1},
}

func (c *respConn) commands(args [][]byte) {
	switch {
	case len(args) == 1:
		c.w.array(len(knownCommands))
		for _, k := range knownCommands {
			c.w.array(6)
			c.w.bulk(k.name)
			c.w.integer(k.arity)
			c.w.array(2)
			c.w.simple("readonly")
			c.w.simple("fast")
			c.w.integer(0)
			c.w.integer(0)
			c.w.integer(0)
		}
	case is(args[1], "COUNT") && len(args) == 2:
		c.w.integer(len(knownCommands))
	case is(args[1], "DOCS"):
		c.w.pairs(0)
	default:
		c.fail(bad(CodeUnknownCommand, "", -1, "COMMAND has COUNT and DOCS"))
	}
}

func (c *respConn) info() {
	if !c.allowed(RoleRead) {
		return
	}
	ok, why, _ := c.s.o.Router.Ready()
	n := c.s.Counters()
	c.w.bulk(fmt.Sprintf("# Server\r\nserver_name:tidegate\r\ntidegate_version:%s\r\nprocess_id:%d\r\n"+
		"# Clients\r\nconnected_clients:%d\r\n# Stats\r\ntotal_commands_processed:%d\r\ntotal_error_replies:%d\r\n"+
		"# Router\r\nready:%t\r\nreason:%s\r\n",
		c.s.o.Version, os.Getpid(), n.RESPConns, n.RESPCommands, n.RESPErrors, ok, why))
}
