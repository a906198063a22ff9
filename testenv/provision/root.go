package provision

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// manifestName is the file in a tree that lists the packages it was made of.
// It is written last before the rename.
const manifestName = "PACKAGES"

// Root is an unpacked tree of packages. It is immutable and may be used by many
// at once.
type Root struct {
	// Dir is the tree's folder, absolute.
	Dir string
	// Packages are the names of the package files it was made of, sorted.
	Packages []string

	loader string
	libs   []string
}

// Path is the place of a file of the tree, given as "usr/sbin/mysqld".
func (r *Root) Path(rel string) string { return filepath.Join(r.Dir, filepath.FromSlash(rel)) }

// Command is the command line that runs program rel ("usr/sbin/mysqld") of the
// tree with the tree's own loader and libraries, whatever the machine has. The
// slice is the caller's.
func (r *Root) Command(rel string, args ...string) []string {
	argv := []string{r.loader, "--library-path", strings.Join(r.libs, ":"), r.Path(rel)}
	return append(argv, args...)
}

// openRoot reads the tree at dir; an error means that it is not complete.
func openRoot(dir string, set Set) (*Root, error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, err
	}
	for _, need := range set.Needs {
		if _, err := os.Stat(filepath.Join(dir, need)); err != nil {
			return nil, fmt.Errorf("tree without %s: %w", need, err)
		}
	}
	r := &Root{Dir: dir, Packages: strings.Fields(string(data))}
	if r.loader, err = findLoader(dir); err != nil {
		return nil, err
	}
	// The loader lies in the folder of the architecture's triplet; the tree may
	// have that folder under /lib, under /usr/lib, or both (merged /usr or not).
	triplet := filepath.Base(filepath.Dir(r.loader))
	for _, lib := range []string{"usr/lib/" + triplet, "lib/" + triplet, "usr/lib/mysql/private"} {
		if info, err := os.Stat(filepath.Join(dir, lib)); err == nil && info.IsDir() {
			r.libs = append(r.libs, filepath.Join(dir, lib))
		}
	}
	return r, nil
}

// findLoader looks for the tree's dynamic loader.
func findLoader(dir string) (string, error) {
	for _, pattern := range []string{"usr/lib/*/ld-linux*.so.*", "lib/*/ld-linux*.so.*", "usr/lib/*/ld64.so.*", "lib/*/ld64.so.*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return "", errors.New("tree without a dynamic loader (libc6 is missing)")
}
