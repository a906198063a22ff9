package cdc_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidegate/cdc"
)

func TestSubjectToken(t *testing.T) {
	for name, want := range map[string]string{
		"posts": "posts", "": "%", "a.b": "a%2Eb", "*": "%2A", ">": "%3E", "a b": "a%20b", "100%": "100%25",
		"user_accounts": "user_accounts", "$x-1": "$x-1", "größe": "gr%C3%B6%C3%9Fe", "\x00": "%00",
	} {
		got := cdc.SubjectToken(name)
		if got != want {
			t.Errorf("token of %q: got %q, want %q", name, got, want)
		}
		if back, err := cdc.ParseSubjectToken(got); err != nil || back != name {
			t.Errorf("name of %q: got %q, %v", got, back, err)
		}
	}
	for _, bad := range []string{"a.b", "%2", "%2e", "%41", "a%", "%%", "a b", "%G0"} {
		if name, err := cdc.ParseSubjectToken(bad); err == nil {
			t.Errorf("%q is taken for %q", bad, name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOf(rapid.Byte()).Draw(t, "name"))
		token := cdc.SubjectToken(name)
		if token == "" || strings.ContainsAny(token, ".*> \t\r\n") {
			t.Fatalf("token of %q: %q", name, token)
		}
		if back, err := cdc.ParseSubjectToken(token); err != nil || back != name {
			t.Fatalf("name of %q: got %q, %v", token, back, err)
		}
	})
}

func FuzzParseSubjectToken(f *testing.F) {
	f.Add("a%2Eb")
	f.Fuzz(func(t *testing.T, token string) {
		name, err := cdc.ParseSubjectToken(token)
		if err == nil && cdc.SubjectToken(name) != token {
			t.Fatalf("%q reads as %q, which is written %q", token, name, cdc.SubjectToken(name))
		}
	})
}
