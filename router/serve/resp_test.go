package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

// respClient speaks RESP by hand, so that each byte is seen.
type respClient struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dialRESP(t testing.TB, s *service) *respClient {
	t.Helper()
	conn, err := net.Dial("tcp", s.resp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(hang))
	return &respClient{Conn: conn, t: t, r: bufio.NewReader(conn)}
}

func (c *respClient) send(raw string) {
	c.t.Helper()
	if _, err := c.Write([]byte(raw)); err != nil {
		c.t.Fatal(err)
	}
}

// cmd writes a command as clients do.
func cmd(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func (c *respClient) want(raw string) {
	c.t.Helper()
	got := make([]byte, len(raw))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != raw {
		c.t.Fatalf("got %q (%v), want %q", got[:n], err, raw)
	}
}

func (c *respClient) line() string {
	c.t.Helper()
	s, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("got %q, %v; want a line", s, err)
	}
	return strings.TrimSuffix(s, "\r\n")
}

func (c *respClient) wantEOF() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Fatalf("got byte %q, %v; want the end", b, err)
	}
}

const (
	identC = "$36\r\ncccccccc-0000-0000-0000-000000000003\r\n$2\r\n12\r\n"
	identB = "$36\r\nbbbbbbbb-0000-0000-0000-000000000002\r\n$2\r\n11\r\n"
	identA = "$36\r\naaaaaaaa-0000-0000-0000-000000000001\r\n$2\r\n10\r\n"
)

func TestRESPCommands(t *testing.T) {
	s := start(t, lagging(t))
	c := dialRESP(t, s)
	for _, step := range []struct{ send, want string }{
		{cmd("SERVE", "c", "KEYS", "1", "app.posts/42"), "*7\r\n:1\r\n$7\r\napplied\r\n$-1\r\n$-1\r\n:0\r\n" + identC},
		{cmd("serve", "b", "keys", "2", "app.posts/41", "app.posts/42", "level", "key"), "*7\r\n:0\r\n$10\r\nkey_behind\r\n$7\r\nprimary\r\n$-1\r\n:0\r\n" + identB},
		{cmd("SERVE", "z", "LEVEL", "eventual"), "*7\r\n:0\r\n$14\r\nunknown_server\r\n$7\r\nprimary\r\n$-1\r\n:0\r\n$-1\r\n$-1\r\n"},
		{cmd("SERVE", "b", "LEVEL", "bounded", "MAXSTALE", "29.9", "CLASS", "normal"), "*7\r\n:0\r\n$9\r\ntoo_stale\r\n$7\r\nprimary\r\n$-1\r\n:0\r\n" + identB},
		{cmd("SERVE", "b", "LEVEL", "session", "FLOOR", uuidA+":1-40"), "*7\r\n:1\r\n$7\r\napplied\r\n$-1\r\n$-1\r\n:0\r\n" + identB},
		{cmd("ROUTE", "KEYS", "1", "app.posts/42"), "*7\r\n$1\r\nc\r\n$7\r\nreplica\r\n$7\r\napplied\r\n$-1\r\n:0\r\n" + identC},
		{cmd("ROUTE", "KEYS", "1", "app.posts/42", "EXCLUDE", "1", "c"), "*7\r\n$1\r\na\r\n$7\r\nprimary\r\n$10\r\nkey_behind\r\n$-1\r\n:0\r\n" + identA},
		{cmd("ROUTE", "LEVEL", "eventual", "INTX"), "*7\r\n$1\r\na\r\n$7\r\nprimary\r\n$7\r\nprimary\r\n$-1\r\n:0\r\n" + identA},
		{cmd("PING"), "+PONG\r\n"},
		{cmd("PING", "hey"), "$3\r\nhey\r\n"},
		{"PING\r\n", "+PONG\r\n"},
		{"  serve c keys 1 app.posts/42  \r\n", "*7\r\n:1\r\n$7\r\napplied\r\n$-1\r\n$-1\r\n:0\r\n" + identC},
		{"\r\n*0\r\nPING\r\n", "+PONG\r\n"},
		{cmd("SELECT", "0"), "+OK\r\n"},
		{cmd("CLIENT", "SETNAME", "me"), "+OK\r\n"},
		{cmd("CLIENT", "GETNAME"), "$2\r\nme\r\n"},
		{cmd("CLIENT", "SETINFO", "LIB-NAME", "x"), "+OK\r\n"},
		{cmd("COMMAND", "COUNT"), ":11\r\n"},
		{cmd("COMMAND", "DOCS"), "*0\r\n"},
		{cmd("HELLO", "3"), "%7\r\n$6\r\nserver\r\n$8\r\ntidegate\r\n$7\r\nversion\r\n$4\r\ntest\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"},
		{cmd("SERVE", "c", "KEYS", "1", "app.posts/42"), "*7\r\n:1\r\n$7\r\napplied\r\n_\r\n_\r\n:0\r\n" + identC},
		{cmd("HELLO", "2"), "*14\r\n$6\r\nserver\r\n$8\r\ntidegate\r\n$7\r\nversion\r\n$4\r\ntest\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"},
		{cmd("QUIT"), "+OK\r\n"},
	} {
		c.send(step.send)
		c.want(step.want)
	}
	c.wantEOF()
}

func TestRESPServers(t *testing.T) {
	c := dialRESP(t, start(t, lagging(t)))
	c.send(cmd("SERVERS"))
	c.want("*3\r\n" +
		"*8\r\n$1\r\na\r\n$7\r\nprimary\r\n:1\r\n$-1\r\n$9\r\ndb-a:3306\r\n$6\r\n30.000\r\n" + identA +
		"*8\r\n$1\r\nb\r\n$7\r\nreplica\r\n:1\r\n$-1\r\n$9\r\ndb-b:3306\r\n$6\r\n30.000\r\n" + identB +
		"*8\r\n$1\r\nc\r\n$7\r\nreplica\r\n:1\r\n$-1\r\n$9\r\ndb-c:3306\r\n$6\r\n30.000\r\n" + identC)
}

// TestBadInputRESP: -ERR with code, field and offset; the connection goes on
// unless the frames can no longer be told apart.
func TestBadInputRESP(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	for _, c := range []struct{ name, send, want string }{
		{"malformed key", cmd("SERVE", "b", "KEYS", "2", "app.posts/1", "app.posts"), "-ERR bad_key field=key[1] offset=9 "},
		{"key of another type", cmd("SERVE", "b", "KEYS", "1", "app.posts/x"), "-ERR bad_key field=key[0] offset=10 "},
		{"malformed GTID", cmd("SERVE", "b", "LEVEL", "session", "FLOOR", "x:1"), "-ERR bad_gtid field=floor offset=0 "},
		{"unknown option", cmd("SERVE", "b", "COLOUR", "blue"), `-ERR unknown_field field="COLOUR" `},
		{"an option of a later version", cmd("SERVE", "b", "SESSION", "s"), `-ERR unknown_field field="SESSION" `},
		{"an option of a later version, WAIT", cmd("SERVE", "b", "WAIT", "5"), `-ERR unknown_field field="WAIT" `},
		{"serve has no EXCLUDE", cmd("SERVE", "b", "EXCLUDE", "1", "a"), `-ERR unknown_field field="EXCLUDE" `},
		{"a command of a later version", cmd("WROTE", "s", "GTID", uuidA+":1"), `-ERR unknown_command there is no command "WROTE"`},
		{"binary command", cmd("\x00\r\n\xff"), `-ERR unknown_command there is no command "\x00\r\n\xff"`},
		{"more keys announced than given", cmd("SERVE", "b", "KEYS", "3", "app.posts/1"), "-ERR bad_field field=KEYS offset=0 "},
		{"a number that is none", cmd("SERVE", "b", "KEYS", "x", "app.posts/1"), "-ERR bad_field field=KEYS offset=0 "},
		{"a negative number", cmd("SERVE", "b", "KEYS", "-1", "app.posts/1"), "-ERR bad_field field=KEYS offset=0 "},
		{"value missing", cmd("SERVE", "b", "LEVEL"), "-ERR bad_field field=LEVEL "},
		{"given twice", cmd("SERVE", "b", "LEVEL", "eventual", "LEVEL", "strong"), "-ERR bad_field field=level "},
		{"no replica", cmd("SERVE"), "-ERR bad_field field=replica "},
		{"no level", cmd("SERVE", "b"), "-ERR level_required field=level "},
		{"level of a later version", cmd("SERVE", "b", "LEVEL", "latest"), "-ERR bad_field field=level offset=0 "},
		{"negative staleness", cmd("SERVE", "b", "LEVEL", "bounded", "MAXSTALE", "-5"), "-ERR bad_field field=MAXSTALE offset=0 "},
		{"another database", cmd("SELECT", "1"), "-ERR bad_field there is one database, 0"},
		{"another protocol", cmd("HELLO", "4"), "-NOPROTO "},
		{"unknown subcommand", cmd("CLIENT", "KILL", "x"), "-ERR unknown_command "},
		{"oversized key", cmd("SERVE", "b", "KEYS", "1", "app.posts/"+strings.Repeat("1", 17<<10)), "-ERR bad_key field=key[0] offset=16384 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := dialRESP(t, s)
			r.send(c.send)
			if got := r.line(); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q...", got, c.want)
			}
			r.send(cmd("PING"))
			r.want("+PONG\r\n")
		})
	}
	for _, c := range []struct{ name, send, want string }{
		{"length that is none", "*x\r\n", "-ERR bad_frame offset=1 "},
		{"argument without $", "*1\r\n+PING\r\n", "-ERR bad_frame offset=4 "},
		{"null argument", "*1\r\n$-1\r\n", "-ERR bad_frame offset=5 "},
		{"argument longer than announced", "*1\r\n$2\r\nPING\r\n", "-ERR bad_frame offset=10 "},
		{"CR without LF", "*1\rx", "-ERR bad_frame offset=3 "},
		{"length beyond all numbers", "*1\r\n$99999999999999\r\n", "-ERR bad_frame offset=15 "},
		{"oversized argument", "*1\r\n$2000000\r\n", "-ERR too_large offset=5 "},
		{"too many arguments", "*5000\r\n", "-ERR too_large offset=1 "},
		{"oversized line", strings.Repeat("x", 1<<20+1), "-ERR too_large offset="},
		{"neither command nor text", "\x16\x03\x01\x02", "-ERR bad_frame offset=0 "},
	} {
		t.Run("ends the connection: "+c.name, func(t *testing.T) {
			r := dialRESP(t, s)
			r.send(cmd("PING") + c.send)
			r.want("+PONG\r\n")
			if got := r.line(); !strings.HasPrefix(got, c.want) || !strings.Contains(got, "Protocol error") {
				t.Errorf("got %q, want %q... Protocol error", got, c.want)
			}
			if _, err := io.Copy(io.Discard, r.r); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection did not end: %v", err)
			}
		})
	}
}

func TestRESPPipelining(t *testing.T) {
	c := dialRESP(t, start(t, lagging(t)))
	const n = 2000
	yes, no := cmd("SERVE", "c", "KEYS", "1", "app.posts/42"), cmd("SERVE", "b", "KEYS", "1", "app.posts/42")
	go func() {
		for i := range n {
			half := len(yes) / 2 // cut commands at will
			if _, err := c.Write([]byte(yes[:half])); err != nil {
				return
			}
			if _, err := c.Write([]byte(yes[half:] + no)); err != nil {
				return
			}
			_ = i
		}
	}()
	for range n {
		c.want("*7\r\n:1\r\n$7\r\napplied\r\n$-1\r\n$-1\r\n:0\r\n" + identC)
		got := make([]byte, len("*7\r\n:0\r\n$10\r\nkey_behind\r\n"))
		if _, err := io.ReadFull(c.r, got); err != nil || string(got) != "*7\r\n:0\r\n$10\r\nkey_behind\r\n" {
			t.Fatalf("got %q, %v", got, err)
		}
		for c.line() != "11" { // otherwise varies with the budget
		}
	}
}

func TestRESPRouteWithoutTarget(t *testing.T) {
	w := routertest.Healthy(t)
	w.HasPrimary = false
	c := dialRESP(t, start(t, w))
	c.send(cmd("ROUTE", "KEYS", "1", "app.posts/1"))
	if got := c.line(); !strings.HasPrefix(got, "-ERR no_primary retry_after_ms=20.000 ") {
		t.Errorf("got %q", got)
	}
}

func TestRESPErrorsStayOnOneLine(t *testing.T) {
	c := dialRESP(t, start(t, routertest.Healthy(t)))
	c.send(cmd("SERVE", "b", "KEYS", "1", "app.po\r\n+OK/1") + cmd("PING"))
	if got := c.line(); !strings.HasPrefix(got, "-ERR bad_key") {
		t.Errorf("got %q", got)
	}
	c.want("+PONG\r\n")
}

func TestGoRedis(t *testing.T) {
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			auth, err := serve.NewAuth([]serve.Credential{{Name: "app", Token: "a-token-of-some-length", Roles: serve.RoleRead}})
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, lagging(t), func(o *serve.Options, _ *router.Options) { o.Auth = auth })
			rdb := redis.NewClient(&redis.Options{Addr: s.resp, Protocol: proto, Username: "app", Password: "a-token-of-some-length", ClientName: "test"})
			defer rdb.Close()
			ctx := context.Background()
			if err := rdb.Ping(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			got, err := rdb.Do(ctx, "SERVE", "c", "KEYS", 1, "app.posts/42").Slice()
			if err != nil || len(got) != 7 || got[0] != int64(1) || got[1] != "applied" || got[2] != nil || got[6] != "12" {
				t.Errorf("got %v, %v", got, err)
			}
			_, err = rdb.Do(ctx, "SERVE", "c", "KEYS", 1, "nonsense").Result()
			if err == nil || !strings.HasPrefix(err.Error(), "ERR bad_key") {
				t.Errorf("got %v", err)
			}
			pipe := rdb.Pipeline()
			var cmds []*redis.Cmd
			for range 100 {
				cmds = append(cmds, pipe.Do(ctx, "ROUTE", "KEYS", 1, "app.posts/42"))
			}
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
			for _, c := range cmds {
				if v, err := c.Slice(); err != nil || v[0] != "c" {
					t.Fatalf("got %v, %v", v, err)
				}
			}
			if _, err := rdb.Info(ctx).Result(); err != nil {
				t.Error(err)
			}
			if _, err := rdb.Command(ctx).Result(); err != nil {
				t.Error(err)
			}
			wrong := redis.NewClient(&redis.Options{Addr: s.resp, Protocol: proto, Password: "not-the-token-at-all", MaxRetries: -1})
			defer wrong.Close()
			if err := wrong.Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("a wrong token: got %v", err)
			}
		})
	}
}
