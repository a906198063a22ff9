package provision

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBF\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----"

func TestParseOneLine(t *testing.T) {
	got := parseOneLine(`
# a comment
deb http://mirror.example/debian bookworm main contrib # and another
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg trusted=yes] https://mirror.example/x ./
	deb	http://mirror.example/debian	bookworm-updates	main
deb[signed-by=/k.gpg] http://mirror.example/y sid main
deb [broken http://mirror.example/z sid main
debian is no type
deb
deb http://only.a.uri
`)
	want := []source{
		{uri: "http://mirror.example/debian", suite: "bookworm", components: []string{"main", "contrib"}},
		{uri: "https://mirror.example/x", suite: "./", components: []string{}, signedBy: "/usr/share/keyrings/a.gpg", trusted: true},
		{uri: "http://mirror.example/debian", suite: "bookworm-updates", components: []string{"main"}},
		{uri: "http://mirror.example/y", suite: "sid", components: []string{"main"}, signedBy: "/k.gpg"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseDeb822(t *testing.T) {
	inline := strings.ReplaceAll(strings.ReplaceAll(key, "\n\n", "\n.\n"), "\n", "\n ")
	got := parseDeb822(`# what an installer wrote
Types: deb deb-src
URIs: http://mirror.example/ubuntu
# in the middle
Suites: noble noble-updates
Components: main universe
Signed-By: /usr/share/keyrings/ubuntu.gpg

Types: deb-src
URIs: http://mirror.example/src
Suites: noble
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/off
Suites: noble
Components: main

types: deb
uris: http://mirror.example/a
  http://mirror.example/b
suites: noble-security
components: main
trusted: yes
Signed-By:
 ` + inline + "\n")
	own := func(uri, suite string) source {
		return source{uri: uri, suite: suite, components: []string{"main", "universe"}, signedBy: "/usr/share/keyrings/ubuntu.gpg"}
	}
	keyed := func(uri string) source {
		return source{uri: uri, suite: "noble-security", components: []string{"main"}, trusted: true, inlineKey: key + "\n"}
	}
	want := []source{
		own("http://mirror.example/ubuntu", "noble"), own("http://mirror.example/ubuntu", "noble-updates"),
		keyed("http://mirror.example/a"), keyed("http://mirror.example/b"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// machine writes an apt folder and an os-release.
func machine(t *testing.T, osRelease string, files map[string]string) (aptDir, osReleaseFile string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "apt", "sources.list.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "apt", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "os-release")
	if err := os.WriteFile(file, []byte(osRelease), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "apt"), file
}

func TestChoose(t *testing.T) {
	const ubuntu = "PRETTY_NAME=\"Ubuntu 24.04 LTS\"\nID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n"
	const mint = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n"
	const debian = "ID=debian\nVERSION_CODENAME=bookworm\n"
	const ubuntuSources = "Types: deb\nURIs: http://m.example/ubuntu\nSuites: noble noble-updates noble-backports\nComponents: main universe\n\n" +
		"Types: deb\nURIs: http://s.example/ubuntu\nSuites: noble-security\nComponents: main\n"
	for _, tt := range []struct {
		name, osRelease string
		files           map[string]string
		candidate       Candidate
		ids             []string
		want            []string // uri suite
	}{
		{
			"ubuntu's own suites", ubuntu,
			map[string]string{"sources.list.d/ubuntu.sources": ubuntuSources, "sources.list": "# moved\n"},
			Candidate{},
			[]string{"ubuntu", "debian"},
			[]string{"http://m.example/ubuntu noble", "http://m.example/ubuntu noble-updates", "http://m.example/ubuntu noble-backports", "http://s.example/ubuntu noble-security"},
		},
		{
			"a derivative of ubuntu, foreign archives left out", mint,
			map[string]string{"sources.list.d/a.list": "deb http://p.example/mint wilma main\n", "sources.list.d/b.sources": ubuntuSources},
			Candidate{},
			[]string{"linuxmint", "ubuntu", "debian"},
			[]string{"http://m.example/ubuntu noble", "http://m.example/ubuntu noble-updates", "http://m.example/ubuntu noble-backports", "http://s.example/ubuntu noble-security"},
		},
		{
			"debian's unstable suite from the base mirror, not from security's", debian,
			map[string]string{
				"sources.list":              "deb http://s.example/debian-security bookworm-security main\ndeb http://m.example/debian bookworm main\ndeb cdrom:[x]/ bookworm main\n",
				"sources.list.d/third.list": "deb http://third.example/ stable extra\n",
			},
			Candidate{Suite: "sid"},
			[]string{"debian"},
			[]string{"http://m.example/debian sid"},
		},
		{
			"an alias for the release", "ID=debian\n",
			map[string]string{"sources.list": "deb http://m.example/debian stable main\n"},
			Candidate{},
			[]string{"debian"},
			[]string{"http://m.example/debian stable"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			aptDir, osRelease := machine(t, tt.osRelease, tt.files)
			rel, err := readRelease(osRelease)
			if err != nil || !reflect.DeepEqual(rel.ids, tt.ids) {
				t.Fatalf("release %+v, %v; want %v", rel, err, tt.ids)
			}
			all, err := readSources(aptDir)
			if err != nil {
				t.Fatal(err)
			}
			chosen, err := choose(all, rel, tt.candidate)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range chosen {
				got = append(got, s.uri+" "+s.suite)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func FuzzSources(f *testing.F) {
	f.Add("deb [a=b] http://m.example/ x main\n")
	f.Add("Types: deb\nURIs: u\nSuites: s\nSigned-By:\n -----BEGIN PGP\n .\n x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range append(parseOneLine(text), parseDeb822(text)...) {
			// A private sources.list is written from these, one a line.
			if s.uri == "" || s.suite == "" || strings.ContainsAny(s.uri+s.suite+strings.Join(s.components, ""), " \n") {
				t.Errorf("source %+v from %q", s, text)
			}
		}
	})
}
