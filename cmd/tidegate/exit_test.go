package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// This file is inside the package, so that the test cache notices every change
// of the program that the other tests run.

func TestReport(t *testing.T) {
	t.Parallel()
	plain := errors.New("it broke")
	for _, tt := range []struct {
		name string
		err  error
		code int
		says string
	}{
		{"nothing", nil, exitOK, ""},
		{"found", errFound, exitFound, ""},
		{"found, wrapped", fmt.Errorf("x: %w", errFound), exitFound, ""},
		{"failed", plain, exitFound, "tidegate: it broke\n"},
		{"usage", usage(plain), exitUsage, "tidegate: it broke\n"},
		{"usage, wrapped", fmt.Errorf("x: %w", usagef("no %d", 7)), exitUsage, "tidegate: x: no 7\n"},
		{"usage, among others", errors.Join(plain, usage(plain)), exitUsage, "tidegate: it broke\nit broke\n"},
		{"usage of nothing", usage(nil), exitOK, ""},
	} {
		var w bytes.Buffer
		if code := report(&w, tt.err); code != tt.code || w.String() != tt.says {
			t.Errorf("%s: code %d, message %q; want %d, %q", tt.name, code, w.String(), tt.code, tt.says)
		}
	}
}
