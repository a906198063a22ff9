package provision

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// source is one archive of the machine's apt configuration: one mirror, one
// suite.
type source struct {
	uri        string
	suite      string
	components []string
	signedBy   string // path of a keyring, or fingerprint; "" for apt's default keys
	inlineKey  string // armoured key that stands in the file itself
	trusted    bool   // the machine's owner waived signatures
}

// readSources reads sources.list and sources.list.d (both formats) of aptDir.
// Archives of sources ("deb-src") and those on removable media are left out.
func readSources(aptDir string) ([]source, error) {
	files := []string{filepath.Join(aptDir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob(filepath.Join(aptDir, "sources.list.d", pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	sort.Strings(files[1:])
	var all []source
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read apt source: %w", err)
		}
		var found []source
		if strings.HasSuffix(file, ".sources") {
			found = parseDeb822(string(data))
		} else {
			found = parseOneLine(string(data))
		}
		all = append(all, found...)
	}
	all = slices.DeleteFunc(all, func(s source) bool { return strings.HasPrefix(s.uri, "cdrom:") })
	if len(all) == 0 {
		return nil, fmt.Errorf("no apt source in %s", aptDir)
	}
	return all, nil
}

// parseOneLine reads the format "deb [option=value ...] uri suite component...".
// Lines that are not of that form name no archive and are passed over, as they
// are the machine's business.
func parseOneLine(text string) []source {
	var out []source
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line, _, _ := strings.Cut(sc.Text(), "#")
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, "deb")
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '[') {
			continue
		}
		var s source
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			options, after, closed := strings.Cut(rest[1:], "]")
			if !closed {
				continue
			}
			rest = after
			for _, option := range strings.Fields(options) {
				name, value, _ := strings.Cut(option, "=")
				s.option(name, value)
			}
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		s.uri, s.suite, s.components = fields[0], fields[1], fields[2:]
		out = append(out, s)
	}
	return out
}

// parseDeb822 reads stanzas of "Field: value", where a line that begins with a
// blank continues the field above and " ." is an empty line.
func parseDeb822(text string) []source {
	var out []source
	for _, stanza := range splitStanzas(text) {
		if no := strings.ToLower(stanza["enabled"]); no == "no" || no == "false" || no == "0" {
			continue
		}
		if !slices.Contains(strings.Fields(stanza["types"]), "deb") {
			continue
		}
		var s source
		s.option("signed-by", stanza["signed-by"])
		s.option("trusted", stanza["trusted"])
		s.components = strings.Fields(stanza["components"])
		for _, uri := range strings.Fields(stanza["uris"]) {
			for _, suite := range strings.Fields(stanza["suites"]) {
				s.uri, s.suite = uri, suite
				out = append(out, s)
			}
		}
	}
	return out
}

// splitStanzas returns the fields of each stanza under lower-case names.
func splitStanzas(text string) []map[string]string {
	var all []map[string]string
	var field string
	stanza := map[string]string{}
	flush := func() {
		if len(stanza) > 0 {
			all = append(all, stanza)
		}
		stanza, field = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			value := strings.TrimSpace(line)
			if value == "." {
				value = ""
			}
			if field != "" {
				stanza[field] += "\n" + value
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				field = ""
				continue
			}
			field = strings.ToLower(strings.TrimSpace(name))
			stanza[field] = strings.TrimSpace(value)
		}
	}
	flush()
	return all
}

func (s *source) option(name, value string) {
	switch strings.ToLower(name) {
	case "signed-by":
		value = strings.TrimSpace(value)
		if strings.Contains(value, "BEGIN PGP") {
			s.inlineKey = value + "\n"
			return
		}
		s.signedBy = strings.Join(strings.Fields(value), ",")
	case "trusted":
		v := strings.ToLower(value)
		s.trusted = v == "yes" || v == "true" || v == "1"
	}
}

// release is what os-release says of the machine.
type release struct {
	ids      []string // ID and ID_LIKE
	codename string   // "bookworm", "noble"; may be empty
}

func readRelease(path string) (release, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return release{}, fmt.Errorf("read os-release: %w", err)
	}
	var r release
	var base string
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		value = strings.Trim(value, `"'`)
		switch name {
		case "ID", "ID_LIKE":
			r.ids = append(r.ids, strings.Fields(value)...)
		case "VERSION_CODENAME":
			r.codename = value
		case "UBUNTU_CODENAME":
			base = value
		}
	}
	if base != "" {
		r.codename = base // a derivative's packages come from its parent's suites
	}
	return r, nil
}

// choose picks the archives for one candidate: the machine's own suites as they
// are, or the named suite on the machine's own main mirror.
func choose(all []source, rel release, c Candidate) ([]source, error) {
	own := slices.DeleteFunc(slices.Clone(all), func(s source) bool {
		return !slices.Contains(s.components, "main") || !ownSuite(s.suite, rel.codename)
	})
	if len(own) == 0 {
		own = slices.DeleteFunc(slices.Clone(all), func(s source) bool { return !slices.Contains(s.components, "main") })
	}
	if len(own) == 0 {
		return nil, errors.New(`no apt source with the component "main"`)
	}
	if c.Suite == "" {
		return own, nil
	}
	// The base suite's mirror carries every suite of the distribution; those of
	// updates and security need not.
	base := own[0]
	for _, s := range own {
		if s.suite == rel.codename {
			base = s
			break
		}
	}
	base.suite, base.components = c.Suite, []string{"main"}
	return []source{base}, nil
}

// ownSuite says whether suite belongs to the release: "bookworm",
// "bookworm-updates", "bookworm-security", or an alias that names no release.
func ownSuite(suite, codename string) bool {
	name, _, _ := strings.Cut(suite, "/")
	if codename == "" {
		return true
	}
	return name == codename || strings.HasPrefix(name, codename+"-") ||
		name == "stable" || name == "testing" || name == "unstable" || name == "sid"
}
