package key

import (
	"bytes"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var (
	update = flag.Bool("update", false, "write COLLATIONS.md anew")
	sweep  = flag.Bool("sweep", false, "hold every code point, pairs of letters and many more texts against the server (minutes for each collation: narrow it with -run)")
	drawn  = flag.Int("texts", 1000, "how many texts and mutations of them to draw; with -sweep 200 times as many")
	seed   = flag.Uint64("seed", 0, "of the texts drawn; 0: the time")
)

// serverCollation is one line of information_schema.COLLATIONS.
type serverCollation struct {
	name, charset string
	id            int
	noPad         bool
}

// TestCollations holds the table of collations against a server: for characters,
// texts and pairs of texts, what MySQL calls equal has one form, and, where the
// table says exact, the other way round; a caller's text gets the bytes that
// MySQL gives it in the column's character set. It also checks COLLATIONS.md,
// which -update writes.
func TestCollations(t *testing.T) {
	timeout := 4 * time.Minute
	if *sweep || *drawn > 1000 {
		timeout = 3 * time.Hour
	}
	s := startServer(t, timeout, "--max-allowed-packet=64M")
	collations := s.collations()
	adv := newAdversary(t)
	texts, pairs := drawTexts(adv), drawPairs(adv)
	s.exec("CREATE TEMPORARY TABLE texts (id INT PRIMARY KEY, b VARBINARY(1000))")
	s.exec("CREATE TEMPORARY TABLE pairs (id INT PRIMARY KEY, a VARBINARY(1000), b VARBINARY(1000))")
	rows := make([][]string, len(texts))
	for i, text := range texts {
		rows[i] = []string{text}
	}
	s.insertBytes("texts", rows)
	s.insertBytes("pairs", pairs)

	folds := map[string]FoldKind{}
	for _, c := range collations {
		if got := CollationName(uint64(c.id)); got != c.name {
			t.Errorf("collation %d is %s, not %q", c.id, c.name, got)
		}
		coll := lookupCollation(c.name)
		folds[c.name] = Wide
		if coll == nil {
			continue
		}
		folds[c.name] = coll.fold
		t.Run(c.name, func(t *testing.T) {
			s := &server{t, s.ctx, s.conn, s.home}
			if coll.data.Name() != c.name || coll.cs.Name() != c.charset || c.noPad != (len(coll.pad) == 0) {
				t.Errorf("the table means %s of %s, pad %x; the server %+v", coll.data.Name(), coll.cs.Name(), coll.pad, c)
			}
			s.checkWeights(c, coll, texts)
			s.checkPairs(c, coll, pairs)
			if coll.cs.MaxWidth() == 1 || !strings.HasPrefix(c.charset, "u") || c.charset == "ujis" {
				s.checkBytes(c, coll)
			}
		})
	}
	for _, e := range collationTable {
		if _, ok := folds[e.name]; !ok {
			t.Errorf("%s: the server has no such collation", e.name)
		}
	}
	if !t.Failed() {
		checkDocument(t, collations, folds)
	}
}

func newAdversary(t *testing.T) adversary {
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("drawn with -seed %d", n)
	return adversary{rand.New(rand.NewPCG(n, 1))}
}

func (s *server) collations() []serverCollation {
	var all []serverCollation
	var c serverCollation
	var pad string
	s.each("SELECT COLLATION_NAME, CHARACTER_SET_NAME, ID, PAD_ATTRIBUTE FROM information_schema.COLLATIONS ORDER BY 2, 1", func() {
		c.noPad = pad == "NO PAD"
		all = append(all, c)
	}, &c.name, &c.charset, &c.id, &pad)
	return all
}

// drawTexts gives characters one by one, and texts of several.
func drawTexts(adv adversary) []string {
	var texts []string
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if utf8.ValidRune(r) && (*sweep || r < 0x600 || r >= 0x3040 && r < 0x3100) {
			texts = append(texts, string(r))
		}
	}
	for _, group := range siblings {
		texts = append(texts, group...)
	}
	n := *drawn
	if *sweep {
		n *= 200
		texts = append(texts, letterPairs()...)
	}
	for range n {
		text, mutation := adv.pair()
		texts = append(texts, text, mutation, adv.runes(), string(adv.rune()))
	}
	return texts
}

// letterPairs are all pairs of characters of the scripts that have contractions.
func letterPairs() []string {
	var pairs []string
	for _, block := range [][2]rune{{0x20, 0x24f}, {0x370, 0x3ff}, {0x400, 0x4ff}, {0x980, 0x9ff}, {0xb00, 0xbff}, {0xc80, 0xd7f}, {0xd80, 0xdff}, {0xe00, 0xeff}, {0xf40, 0xfbf}, {0x1000, 0x109f}, {0x3040, 0x30ff}} {
		for a := block[0]; a <= block[1]; a++ {
			for b := block[0]; b <= block[1]; b++ {
				pairs = append(pairs, string([]rune{a, b}))
			}
			for b := rune(0x300); b < 0x370; b++ {
				pairs = append(pairs, string([]rune{a, b}))
			}
		}
	}
	return pairs
}

func drawPairs(adv adversary) [][]string {
	n := *drawn
	if *sweep {
		n *= 100
	}
	pairs := make([][]string, n)
	for i := range pairs {
		a, b := adv.pair()
		pairs[i] = []string{a, b}
	}
	return pairs
}

// classes checks that two ways to sort texts into classes agree. Where our
// weights are meant to be MySQL's own, they are simply the same bytes.
type classes struct {
	*server
	same   bool
	exact  bool
	ours   map[string]string // by the server's weights
	theirs map[string]string // by ours
}

func newClasses(s *server, coll *collation) *classes {
	return &classes{s, !coll.binary && !coll.recoded, coll.fold == Exact, map[string]string{}, map[string]string{}}
}

func (c *classes) add(what any, theirs, ours []byte) {
	if c.same {
		if !bytes.Equal(theirs, ours) {
			c.Errorf("%q: weights %x, MySQL's are %x", what, ours, theirs)
		}
		return
	}
	if o, ok := c.ours[string(theirs)]; ok && o != string(ours) {
		c.Errorf("%q: form %x, but another text that MySQL calls equal has %x", what, ours, o)
	}
	if th, ok := c.theirs[string(ours)]; c.exact && ok && th != string(theirs) {
		c.Errorf("%q: form %x, but another text of this form is not equal in MySQL: weights %x, %x", what, ours, theirs, th)
	}
	c.ours[string(theirs)], c.theirs[string(ours)] = string(ours), string(theirs)
}

// checkWeights compares forms with WEIGHT_STRING, its pad removed, and the bytes
// of texts in the character set.
func (s *server) checkWeights(c serverCollation, coll *collation, texts []string) {
	var id int
	var weights, pad, converted sql.RawBytes
	cl := newClasses(s, coll)
	compared := 0
	s.each(fmt.Sprintf(`SELECT id, WEIGHT_STRING(c COLLATE %s), WEIGHT_STRING(CONVERT(' ' USING %s) COLLATE %s), CAST(c AS BINARY)
		FROM (SELECT id, CONVERT(CONVERT(b USING utf8mb4) USING %s) AS c FROM texts) x`, c.name, c.charset, c.name, c.charset), func() {
		text := texts[id]
		ours, err := coll.encode(nil, text)
		lost := s.lostCharacters(coll, text, converted)
		if lost != (err != nil) {
			s.Errorf("%q: MySQL encodes it as %x, we as %x (%v)", text, converted, ours, err)
		}
		if lost || err != nil {
			return
		}
		if !bytes.Equal(ours, converted) {
			s.Errorf("%q: MySQL encodes it as %x, we as %x", text, converted, ours)
		}
		form, ok := coll.appendWeights(nil, converted)
		if !ok {
			s.Errorf("%q: not valid in %s", text, c.charset)
			return
		}
		cl.add(text, c.withoutPad(weights, pad), form)
		compared++
	}, &id, &weights, &pad, &converted)
	if compared < 100 {
		s.Errorf("only %d texts were compared", compared)
	}
}

// withoutPad removes the weights of spaces at the end, which PAD SPACE collations
// do not compare.
func (c *serverCollation) withoutPad(weights, pad []byte) []byte {
	for !c.noPad && len(pad) > 0 && bytes.HasSuffix(weights, pad) {
		weights = weights[:len(weights)-len(pad)]
	}
	return weights
}

// lostCharacters tells that MySQL could not convert: it put question marks.
func (s *server) lostCharacters(coll *collation, text string, converted []byte) bool {
	mark, err := coll.encode(nil, "?")
	if err != nil {
		s.Fatal(err)
	}
	return bytes.Count(converted, mark) != strings.Count(text, "?")
}

// checkPairs compares with the equals sign.
func (s *server) checkPairs(c serverCollation, coll *collation, pairs [][]string) {
	var id int
	var equal bool
	compared, equals := 0, 0
	s.each(fmt.Sprintf(`SELECT id, CONVERT(CONVERT(a USING utf8mb4) USING %s) = CONVERT(CONVERT(b USING utf8mb4) USING %s) COLLATE %s FROM pairs`,
		c.charset, c.charset, c.name), func() {
		a, errA := coll.appendUTF8(nil, pairs[id][0])
		b, errB := coll.appendUTF8(nil, pairs[id][1])
		if errA != nil || errB != nil {
			return
		}
		same := bytes.Equal(a, b)
		if equal && !same {
			s.Errorf("%q = %q in MySQL, but forms are %x and %x", pairs[id][0], pairs[id][1], a, b)
		}
		if same && !equal && coll.fold == Exact {
			s.Errorf("%q != %q in MySQL, but both have form %x", pairs[id][0], pairs[id][1], a)
		}
		compared++
		if equal {
			equals++
		}
	}, &id, &equal)
	if compared < 10 || equals == 0 {
		s.Errorf("only %d pairs were compared, %d of them equal", compared, equals)
	}
}

// checkBytes goes through the codes of a character set that is not a Unicode
// one: what a row holds, and what the caller who reads it would name, must meet.
func (s *server) checkBytes(c serverCollation, coll *collation) {
	s.exec("DROP TEMPORARY TABLE IF EXISTS codes")
	s.exec("CREATE TEMPORARY TABLE codes (id INT PRIMARY KEY, b VARBINARY(8))")
	s.insertBytes("codes", drawCodes(coll.cs.MaxWidth()))
	var code, text, weights, pad sql.RawBytes
	cl := newClasses(s, coll)
	s.each(fmt.Sprintf(`SELECT b, CAST(CONVERT(c USING utf8mb4) AS BINARY), WEIGHT_STRING(c COLLATE %s), WEIGHT_STRING(CONVERT(' ' USING %s) COLLATE %s)
		FROM (SELECT b, CONVERT(b USING %s) AS c FROM codes) x WHERE CAST(c AS BINARY) = b AND b <> ''`, c.name, c.charset, c.name, c.charset), func() {
		form, ok := coll.appendWeights(nil, code)
		if !ok {
			return // its rows are written all-rows
		}
		cl.add(string(code), c.withoutPad(weights, pad), form)
		if bytes.Contains(text, []byte("?")) && !bytes.Contains(code, []byte("?")) || len(text) == 0 || !utf8.Valid(text) {
			return // no text names it
		}
		named, err := coll.appendUTF8(nil, string(text))
		if err != nil || !bytes.Equal(named, form) {
			s.Errorf("code %x is %q to a caller, whose form is %x (%v), not %x", code, text, named, err, form)
		}
	}, &code, &text, &weights, &pad)
}

// drawCodes are all codes of one byte, and a share of (with -sweep all) those of
// two and three.
func drawCodes(width int) (codes [][]string) {
	every := 7
	if *sweep {
		every = 1
	}
	n := 0
	add := func(b ...byte) {
		if n++; len(b) == 1 || n%every == 0 {
			codes = append(codes, []string{string(b)})
		}
	}
	for a := range 256 {
		add(byte(a))
	}
	if width == 1 {
		return codes
	}
	for a := 0x80; a < 256; a++ {
		for b := range 256 {
			add(byte(a), byte(b))
			if width > 2 && b >= 0x80 {
				add(0x8f, byte(a), byte(b))
			}
		}
	}
	return codes
}

const documentFile = "COLLATIONS.md"

func checkDocument(t *testing.T, collations []serverCollation, folds map[string]FoldKind) {
	want := document(t, collations, folds)
	if *update {
		if err := os.WriteFile(documentFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(documentFile)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what this test found (%v); write it with: go test ./cdc/key -run TestCollations -update", documentFile, err)
	}
}
