package binlog

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

var update = flag.Bool("update", false, "write what the transcripts print into testdata")

// TestTranscripts plays scripts of events and compares what the assembler makes
// of them. A file holds blocks: a title, lines of events, "----", the output.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/assemble/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for _, block := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
				input, want, _ := strings.Cut(block, "\n----\n")
				got := playBlock(t, input)
				fmt.Fprintf(&out, "%s\n----\n%s\n\n", input, got)
				if title, _, _ := strings.Cut(input, "\n"); !*update && got != strings.TrimSpace(want) {
					t.Errorf("%s\n got:\n%s\nwant:\n%s", title, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// transcriptBed prints outcomes with names in place of digests.
type transcriptBed struct {
	names  map[key.Digest]string
	counts Counters
	asm    *assembler
	reg    *registry
}

func newTranscriptBed(t testing.TB, options string) *transcriptBed {
	b := &transcriptBed{names: map[key.Digest]string{}}
	h := key.NewHasher(key.Secret{1})
	b.reg = newRegistry(h, map[string][]string{"app.g": {"grp"}})
	facts := scriptFacts
	facts.FoldNames = strings.Contains(options, "fold")
	if err := b.reg.begin(&facts, "a"); err != nil {
		t.Fatal(err)
	}
	mode, keyCap := Keys, 100
	if strings.Contains(options, "hints") {
		mode = Hints
	}
	if strings.Contains(options, "cap") {
		keyCap = 4
	}
	delivered := gtid.NewBuilder(gtid.Set{})
	b.asm = newAssembler(mode, keyCap, 1<<20, b.reg, &b.counts, delivered.Contains)
	b.names[h.Everything()] = "everything"
	for _, s := range []string{"app", "other", "mysql", "new"} {
		b.names[h.Schema(s)] = "schema:" + s
	}
	for _, table := range []string{"t", "u", "g", "p", "n", "x", "T"} {
		s := h.Table("app", table)
		b.names[s.AnyRow], b.names[s.AllRows] = "any:"+table, "all:"+table
		def := key.Definition{Schema: "app", Table: table, Primary: []key.Column{{Name: "id", Type: key.TypeInt, Nullable: true}}}
		def.Seal()
		for v := range int64(40) {
			form, err := def.Primary[0].AppendForm(nil, key.Value{Int: v})
			if err != nil {
				t.Fatal(err)
			}
			b.names[s.Row(form)] = fmt.Sprintf("%s/%d", table, v)
			g := s.Group("grp")
			b.names[g.AllRows] = "all:" + table + "@grp"
			b.names[g.Value(form)] = fmt.Sprintf("%s@grp/%d", table, v)
		}
		null, err := def.Primary[0].AppendForm(nil, key.Null())
		if err != nil {
			t.Fatal(err)
		}
		g := s.Group("grp")
		b.names[g.Value(null)] = table + "@grp/@null"
	}
	return b
}

func (b *transcriptBed) print(list []key.Digest) string {
	var out []string
	for _, d := range list {
		n, ok := b.names[d]
		if !ok {
			n = "?"
		}
		out = append(out, n)
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

var flagNames = []struct {
	flag event.Flags
	name string
}{
	{event.Empty, "empty"}, {event.Statement, "statement"}, {event.DDL, "ddl"}, {event.Capped, "capped"}, {event.XAPrepare, "xa-prepare"},
	{event.XACommit, "xa-commit"}, {event.XARollback, "xa-rollback"}, {event.NotUnderstood, "not-understood"},
}

func (b *transcriptBed) outcome(out outcome) string {
	switch {
	case out.txn != nil:
		t := out.txn
		line := []string{"txn", strings.ReplaceAll(t.GTID.String(), scriptUUID, "A")}
		for _, f := range flagNames {
			if t.Flags&f.flag != 0 {
				line = append(line, f.name)
			}
		}
		if t.XID != "" {
			line = append(line, t.XID)
		}
		line = append(line, fmt.Sprintf("tables=[%s] scopes=[%s]", b.print(t.Tables), b.print(t.Scopes)))
		if len(t.Defs) > 0 {
			var defs []string
			for _, d := range t.Defs {
				known := "known"
				if d.Version == 0 {
					known = "unknown"
				}
				defs = append(defs, strings.TrimPrefix(b.names[d.Table], "any:")+":"+known)
			}
			sort.Strings(defs)
			line = append(line, "defs=["+strings.Join(defs, " ")+"]")
		}
		return strings.Join(line, " ")
	case out.hole != nil:
		return fmt.Sprintf("hole [%s] anonymous=%t headers=%d: %s",
			strings.ReplaceAll(out.hole.GTIDs.OneLine(), scriptUUID, "A"), out.hole.Anonymous, len(out.hole.Headers), out.hole.Reason)
	case out.progress:
		return fmt.Sprintf("progress %s:%d", b.asm.at.File, b.asm.at.Pos)
	}
	return ""
}

func playBlock(t testing.TB, input string) string {
	title, body, _ := strings.Cut(input, "\n")
	b := newTranscriptBed(t, title)
	defer b.asm.close()
	var lines []string
	body = "format crc32\n" + strings.NewReplacer("$A:", scriptUUID+":").Replace(body)
	for _, ev := range scriptEvents(t, body) {
		out, err := b.asm.event(Raw{Data: ev})
		if err != nil {
			lines = append(lines, "error "+err.Error())
			if b.asm.poison() {
				lines = append(lines, "poisoned")
			}
		}
		if s := b.outcome(out); s != "" {
			lines = append(lines, s)
		}
	}
	if b.asm.txn.open {
		lines = append(lines, "open")
	}
	return strings.Join(lines, "\n")
}
