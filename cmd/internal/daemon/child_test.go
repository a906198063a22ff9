package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// What a child of the test binary runs.
const (
	envChildConfig = "TIDEGATE_TEST_CHILD_CONFIG" // file
	envChildParts  = "TIDEGATE_TEST_CHILD_PARTS"  // run, tail or serve
	envChildOnly   = "TIDEGATE_TEST_CHILD_ONLY"   // servers that tail is for, with commas; empty: all
	envChildFSize  = "TIDEGATE_TEST_CHILD_FSIZE"  // RLIMIT_FSIZE in bytes; empty: none
)

// runChild is the program as a process of its own, so that it can be killed, or
// denied room on the disk. It returns the exit status.
func runChild(file string) int {
	err := func() error {
		if size := os.Getenv(envChildFSize); size != "" {
			n, err := strconv.ParseUint(size, 10, 64)
			if err != nil {
				return err
			}
			signal.Ignore(syscall.SIGXFSZ) // writes fail with EFBIG instead
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
				return fmt.Errorf("limit the size of files: %w", err)
			}
		}
		cfg, err := config.Load(file, os.LookupEnv)
		if err != nil {
			return err
		}
		parts := os.Getenv(envChildParts)
		var only []string
		if list := os.Getenv(envChildOnly); list != "" {
			only = strings.Split(list, ",")
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		d, err := daemon.Open(ctx, cfg, daemon.Options{
			Parts: daemon.Parts{Tail: parts != "serve", Serve: parts != "tail", Only: only},
			// Errors go to the log too; its end is what a failed test prints.
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		if err != nil {
			return err
		}
		return errors.Join(d.Run(ctx), d.Close())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ended:", err)
		return 1
	}
	return 0
}

// child starts the program as a process of its own; with an HTTP port it is
// ready when it answers there.
func (w *world) child(parts string, s settings, env ...string) *testenv.Process {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.t.TempDir(), "tidegate.yaml")
	if err := os.WriteFile(file, []byte(w.configText(s)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	p := testenv.Program{
		Name: parts, Argv: []string{self}, StartTimeout: testenvtest.HangTimeout,
		Env: append([]string{envChildConfig + "=" + file, envChildParts + "=" + parts}, env...),
	}
	if s.http != "" && len(env) == 0 { // who is denied something may end before it answers
		p.Ready = func(ctx context.Context) error { return healthy(ctx, s.http) }
	}
	process, err := testenv.NewProcess(p)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("%s said last:\n%s", parts, process.Log())
		}
		if err := process.Close(); err != nil {
			w.t.Errorf("end %s: %v", parts, err)
		}
	})
	if err := process.Start(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	return process
}

// port reserves a loopback port for a child's listener.
func (w *world) port() string {
	w.t.Helper()
	p, err := testenv.ReservePort()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Release)
	return p.Addr()
}

func get(ctx context.Context, u string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	// Connections are not kept: a killed router leaves none.
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testenvtest.HangTimeout}
	res, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

func healthy(ctx context.Context, addr string) error {
	code, body, err := get(ctx, "http://"+addr+"/healthz")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("/healthz: %d %s", code, body)
	}
	return err
}

// askHTTP asks a router in another process.
func askHTTP(addr string) ask {
	return func(ctx context.Context, q question) (answer, error) {
		v := url.Values{"replica": {q.server}, "key": {q.key}, "level": {"key"}}
		if !q.floor.IsEmpty() {
			v.Set("floor", strings.ReplaceAll(q.floor.String(), "\n", ""))
		}
		code, body, err := get(ctx, "http://"+addr+"/v1/serve?"+v.Encode())
		if err != nil {
			return answer{}, err
		}
		if code != http.StatusOK {
			return answer{}, fmt.Errorf("/v1/serve: %d %s", code, body)
		}
		var a struct {
			Serve        bool     `json:"serve"`
			Reason       string   `json:"reason"`
			UUID         string   `json:"server_uuid"`
			WatermarkAge *float64 `json:"watermark_age_ms"`
		}
		if err := json.Unmarshal(body, &a); err != nil {
			return answer{}, err
		}
		out := answer{yes: a.Serve, reason: a.Reason, uuid: a.UUID}
		if a.WatermarkAge != nil {
			// Printed numbers are rounded: half a unit more is the careful side.
			out.markAge = time.Duration(*a.WatermarkAge*float64(time.Millisecond)) + time.Millisecond
		}
		return out, nil
	}
}
