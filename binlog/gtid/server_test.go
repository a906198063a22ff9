package gtid_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"tidegate/binlog/gtid"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// erMalformedGTIDSet and erMalformedGTID are MySQL's refusals of a set
// (ER_MALFORMED_GTID_SET_SPECIFICATION) and of one GTID
// (ER_MALFORMED_GTID_SPECIFICATION).
const (
	erMalformedGTIDSet = 1772
	erMalformedGTID    = 1774
)

// TestServer holds parser, printer, algebra and SID blocks against a real
// server.
func TestServer(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	a := c.Server("a")
	if !c.MySQL.AtLeast(9, 7, 0) {
		t.Fatalf("MySQL %s parses and prints some texts differently (tags came with 8.3); this test describes 9.7: set %s to a 9.7 mysqld or unset it", c.MySQL.Version, testenv.EnvMySQLD)
	}
	ctx := testenvtest.Context(t, 2*time.Minute)
	conn, err := a.DB().Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	s := server{ctx: ctx, conn: conn}
	// First: the server writes the tagged format once it has seen any tag.
	t.Run("writes SID blocks", s.testSIDBlocks)
	t.Run("parses", s.testParses)
	t.Run("parses mutated texts", s.testParsesMutated)
	t.Run("reads one GTID", s.testReadsSingles)
	t.Run("computes", s.testComputes)
}

// server is one connection.
type server struct {
	ctx  context.Context
	conn *sql.Conn
}

// literal writes any bytes as an SQL string.
func literal(text string) string {
	if text == "" {
		return "''"
	}
	return "_utf8mb4 0x" + hex.EncodeToString([]byte(text))
}

// query asks for one row of strings. It returns false when the server refused
// a text with the given error, and fails the test at any other error.
func (s server) query(t *testing.T, refusal uint16, query string, dst ...any) bool {
	t.Helper()
	err := s.conn.QueryRowContext(s.ctx, query).Scan(dst...)
	var my *mysql.MySQLError
	switch {
	case err == nil:
		return true
	case errors.As(err, &my) && my.Number == refusal:
		return false
	}
	t.Fatalf("%s: %v", query, err)
	return false
}

// same fails unless server and package both refuse text, or both read it and
// print the same.
func (s server) same(t *testing.T, text string) (refused bool) {
	t.Helper()
	var want string
	ok := s.query(t, erMalformedGTIDSet, "SELECT GTID_SUBTRACT("+literal(text)+", '')", &want)
	got, err := gtid.Parse(text)
	switch {
	case ok && err != nil:
		t.Errorf("%q: the server reads %q, we refuse: %v", text, want, err)
	case !ok && err == nil:
		t.Errorf("%q: the server refuses, we read %q", text, got)
	case ok && got.String() != want:
		t.Errorf("%q: the server prints %q, we %q", text, want, got)
	}
	return !ok
}

func (s server) testParses(t *testing.T) {
	for _, c := range accepted {
		if s.same(t, expand(c.text)) {
			t.Errorf("%q: refused by the server, in the table of accepted texts", c.text)
		}
	}
	for _, c := range refused {
		if !s.same(t, expand(c.text)) {
			t.Errorf("%q: read by the server, in the table of refused texts", c.text)
		}
	}
}

// testParsesMutated changes a few bytes of good texts, which reaches what no
// table thought of.
func (s server) testParsesMutated(t *testing.T) {
	const rounds = 1500
	rnd := newRand(t)
	alphabet := "0123456789abcdefABCDEFgzGZ_-:, \t\n\v{}+\x00.;\"'\\"
	bad := 0
	for range rounds {
		text := []byte(randomText(rnd))
		for range 1 + rnd.IntN(3) {
			c := alphabet[rnd.IntN(len(alphabet))]
			switch i := rnd.IntN(len(text) + 1); {
			case i == len(text) || rnd.IntN(3) == 0:
				text = append(text[:i:i], append([]byte{c}, text[i:]...)...)
			case rnd.IntN(2) == 0:
				text[i] = c
			default:
				text = append(text[:i], text[i+1:]...)
			}
		}
		if s.same(t, string(text)) {
			bad++
		}
	}
	if bad == 0 || bad == rounds {
		t.Errorf("%d of %d texts refused: the mutation is too weak or too strong", bad, rounds)
	}
}

func (s server) testReadsSingles(t *testing.T) {
	for _, c := range singles {
		_, err := s.conn.ExecContext(s.ctx, "SET gtid_next = "+literal(expand(c.text)))
		var my *mysql.MySQLError
		if errors.As(err, &my) && my.Number == erMalformedGTID {
			if c.want != "" {
				t.Errorf("%q: refused by the server", c.text)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%q: %v", c.text, err)
		}
		var got string
		s.query(t, 0, "SELECT @@gtid_next", &got)
		if got != expand(c.want) {
			t.Errorf("%q: the server prints %q, the table has %q", c.text, got, expand(c.want))
		}
		// Ends the ownership of the GTID without using it.
		for _, q := range []string{"ROLLBACK", "SET gtid_next = 'AUTOMATIC'"} {
			if _, err := s.conn.ExecContext(s.ctx, q); err != nil {
				t.Fatalf("%q: %s: %v", c.text, q, err)
			}
		}
	}
}

func (s server) testComputes(t *testing.T) {
	const rounds = 400
	rnd := newRand(t)
	subsets, overlaps := 0, 0
	for range rounds {
		ta, tb := randomText(rnd), randomText(rnd)
		if rnd.IntN(3) == 0 {
			// Relatives: a subset, with luck a proper one.
			tb = gtid.MustParse(ta).Subtract(gtid.MustParse(tb)).String()
		}
		a, b := gtid.MustParse(ta), gtid.MustParse(tb)
		la, lb := literal(ta), literal(tb)
		var minus, both, union string
		var bInA, aInB bool
		if !s.query(t, erMalformedGTIDSet, fmt.Sprintf(
			"SELECT GTID_SUBTRACT(%[1]s, %[2]s), GTID_SUBTRACT(%[1]s, GTID_SUBTRACT(%[1]s, %[2]s)), GTID_SUBTRACT(CONCAT(%[1]s, ',', %[2]s), ''), GTID_SUBSET(%[2]s, %[1]s), GTID_SUBSET(%[1]s, %[2]s)",
			la, lb), &minus, &both, &union, &bInA, &aInB) {
			t.Fatalf("refused:\n%s\n%s", ta, tb)
		}
		for _, c := range []struct{ what, got, want string }{
			{"subtract", a.Subtract(b).String(), minus},
			{"intersect", a.Intersect(b).String(), both},
			{"union", a.Union(b).String(), union},
			{"contains", fmt.Sprint(a.ContainsSet(b), b.ContainsSet(a)), fmt.Sprint(bInA, aInB)},
			{"overlaps", fmt.Sprint(a.Overlaps(b)), fmt.Sprint(both != "")},
			{"built", built(a, b).String(), union},
		} {
			if c.got != c.want {
				t.Fatalf("%s of\n%s\nand\n%s:\nserver\n%s\nwe\n%s", c.what, ta, tb, c.want, c.got)
			}
		}
		if g, missing := a.FirstMissing(b); missing == bInA || missing && (a.Contains(g) || !b.Contains(g)) {
			t.Fatalf("first missing %v of\n%s\nin\n%s", g, tb, ta)
		}
		if bInA {
			subsets++
		}
		if both != "" {
			overlaps++
		}
	}
	if subsets < rounds/10 || subsets > rounds*9/10 || overlaps < rounds/10 {
		t.Errorf("%d subsets and %d overlaps in %d rounds: the random sets decide nothing", subsets, overlaps, rounds)
	}
}

// built adds b to a one interval at a time, with snapshots between.
func built(a, b gtid.Set) gtid.Set {
	bld := gtid.NewBuilder(a)
	for src, iv := range b.All() {
		if iv.First == iv.Last {
			bld.Add(gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: iv.First})
		} else {
			bld.AddInterval(src, iv)
		}
		bld.Set()
	}
	return bld.Set()
}

// testSIDBlocks commits the GTIDs of sets, so that the next binlog file begins
// with them in its PREVIOUS_GTIDS_LOG_EVENT, which must be what we write, byte
// for byte.
func (s server) testSIDBlocks(t *testing.T) {
	var base string
	s.query(t, 0, "SELECT @@GLOBAL.log_bin_basename", &base)
	same := map[bool]int{}
	for i, text := range []string{
		"",
		expand("U:1-5"),
		expand("U:1-5:9,V:3:5:7-8"),
		expand("U:tag:1,V:1-3:_:9223372036854775806"),
		expand("U:1-2:abcdefghijklmnopqrst_wxyz_012345:7:9,V:a:1:a_:1:b:1"),
		expand("U:1-3"), // in the tagged format now
	} {
		set := gtid.MustParse(text)
		s.exec(t, "RESET BINARY LOGS AND GTIDS")
		for src, iv := range set.All() {
			for seq := iv.First; seq <= iv.Last; seq++ {
				s.exec(t, fmt.Sprintf("SET gtid_next = '%v:%d'", src, seq))
				s.exec(t, "BEGIN")
				s.exec(t, "COMMIT")
			}
		}
		s.exec(t, "SET gtid_next = 'AUTOMATIC'")
		s.exec(t, "FLUSH BINARY LOGS")
		var executed, file string
		s.query(t, 0, "SELECT @@GLOBAL.gtid_executed", &executed)
		if executed != set.String() {
			t.Errorf("set %d: gtid_executed is\n%s\nwe print\n%s", i, executed, set)
		}
		var ignored [4]sql.NullString
		s.query(t, 0, "SHOW BINARY LOG STATUS", &file, &ignored[0], &ignored[1], &ignored[2], &ignored[3])
		block := previousGTIDsEvent(t, filepath.Join(filepath.Dir(base), file))
		got, rest, err := gtid.DecodeSIDBlock(block)
		if err != nil || len(rest) != 0 || !got.Equal(set) {
			t.Errorf("set %d: block %x read as %v, rest %x, %v; want %v", i, block, got, rest, err, set)
		}
		const formatByte = 7
		if tagged := block[formatByte] == 1; tagged == set.HasTags() {
			same[tagged]++
			if ours := set.EncodeSIDBlock(nil); string(ours) != string(block) {
				t.Errorf("set %d (%v): server wrote\n%x\nwe write\n%x", i, set, block, ours)
			}
		}
	}
	if same[false] < 3 || same[true] < 2 {
		t.Errorf("%d blocks compared in the untagged and %d in the tagged format, want 3 and 2", same[false], same[true])
	}
}

func (s server) exec(t *testing.T, query string) {
	t.Helper()
	if _, err := s.conn.ExecContext(s.ctx, query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// previousGTIDsEvent returns the body of the PREVIOUS_GTIDS_LOG_EVENT of a
// binlog file.
func previousGTIDsEvent(t *testing.T, file string) []byte {
	t.Helper()
	const (
		magic         = 4
		header        = 19
		checksum      = 4
		previousGTIDs = 35
	)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for pos := magic; pos+header <= len(raw); {
		size := int(binary.LittleEndian.Uint32(raw[pos+9:]))
		if size < header+checksum || pos+size > len(raw) {
			break
		}
		if raw[pos+4] == previousGTIDs {
			return raw[pos+header : pos+size-checksum]
		}
		pos += size
	}
	t.Fatalf("%s: no PREVIOUS_GTIDS_LOG_EVENT in %d bytes", file, len(raw))
	return nil
}

// newRand returns a source whose seed is printed, so that a failure can be
// played again.
func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomText writes a set as nobody should: UUIDs and tags repeated, intervals
// unordered, overlapping, reversed, with white space and mixed case.
func randomText(rnd *rand.Rand) string {
	var parts []string
	space := func() string { return strings.Repeat(" ", max(0, rnd.IntN(6)-4)) }
	for range rnd.IntN(5) {
		var p strings.Builder
		u := pool[rnd.IntN(len(pool))].UUID.String()
		switch rnd.IntN(6) {
		case 0:
			u = strings.ToUpper(u)
		case 1:
			u = strings.ReplaceAll(u, "-", "")
		case 2:
			u = "{" + u + "}"
		}
		p.WriteString(space() + u + space())
		for range rnd.IntN(7) {
			if rnd.IntN(4) == 0 {
				p.WriteString(":" + space() + []string{"a", "B", "a_", "_", "Tag9"}[rnd.IntN(5)] + space())
			}
			first := 1 + rnd.Int64N(30)
			if rnd.IntN(40) == 0 {
				first = gtid.MaxSeq - rnd.Int64N(5)
			}
			fmt.Fprintf(&p, ":%s%d%s", space(), first, space())
			if rnd.IntN(2) == 0 {
				fmt.Fprintf(&p, "-%s%d", space(), max(first-2, 0)+min(rnd.Int64N(9), gtid.MaxSeq-first))
			}
		}
		parts = append(parts, p.String())
	}
	return strings.Join(parts, []string{",", " , ", ",\n", ",,"}[rnd.IntN(4)])
}
