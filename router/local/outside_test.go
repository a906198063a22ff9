package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is somebody else's: it puts a router into its own process and keeps a
// client of a router elsewhere.
const program = `package main

import (
	"context"
	"fmt"
	"os"

	"tidegate/cdc"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/client"
	"tidegate/router/local"
)

func main() {
	_, err := local.Open(context.Background(), local.Options{})
	fmt.Println("local:", err)
	_, err = client.New(client.Options{})
	fmt.Println("client:", err)
	if len(os.Args) > 1 {
		l, err := local.Open(context.Background(), local.Options{Cluster: "shop", NATS: cdc.Options{URL: os.Args[1]}})
		if err != nil {
			return
		}
		defer l.Close()
		k, _ := key.Parse("app.posts/42")
		var ans router.Answer
		_ = l.Route(context.Background(), &router.Request{Keys: []key.Key{k}}, &ans)
	}
}
`

// Another module can use the router in its own process, and the thin client.
func TestAnotherModuleCanImportIt(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(mod), "module tidegate\n", "module example.org/shop\n", 1) +
		"\nrequire tidegate v0.0.0\n\nreplace tidegate => " + root + "\n"
	for name, content := range map[string]string{"go.mod": text, "go.sum": string(sum), "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "shop")
	build := exec.Command("go", "build", "-mod=mod", "-o", bin, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build of another module: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).CombinedOutput()
	if err != nil {
		t.Fatalf("run it: %v\n%s", err, out)
	}
	for _, want := range []string{"local: local router: options Cluster or Conn", "client: "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
