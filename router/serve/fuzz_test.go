package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"tidegate/router"
)

// FuzzQuery: no query does harm, what is refused names a code of the list, and
// unescape agrees with net/url.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		"replica=b&key=app.posts/42", "replica=b&key=app.posts%2F42&key=a.b@c/%2540null", "level=session&floor=aaaaaaaa-0000-0000-0000-000000000001:1-5:7",
		"max_staleness_ms=1e3&verbose=1", "&&=&a", "key=%", "key=%zz", "+=+", "class=normal&class=normal",
	} {
		f.Add(s)
	}
	codes := strings.Join(Codes(), " ")
	f.Fuzz(func(t *testing.T, raw string) {
		got, ok := unescape(raw)
		want, err := url.QueryUnescape(raw)
		if ok != (err == nil) || ok && got != want {
			t.Fatalf("unescape %q: got %q, %v; net/url says %q, %v", raw, got, ok, want, err)
		}
		for _, k := range []kind{kindServe, kindRoute, kindEligible} {
			a := new(ask)
			a.reset(k)
			if err := a.query(raw); err != nil {
				checkError(t, err, codes)
			}
			if len(a.keys) > router.MaxKeys || len(a.keys) != len(a.printed) {
				t.Fatalf("%d keys, %d printed", len(a.keys), len(a.printed))
			}
		}
	})
}

// FuzzJSON: the reader takes exactly what encoding/json takes for JSON, and no
// body does harm to the fields.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"replica":"b","keys":["app.posts/42",{"table":"app.posts","pk":[1,"x",null]},{"table":"a.b","group":"c","value":-1.5e3}]}`,
		`{"requests":[{"replica":"b"},{"level":"strong"}]}`, `{"reads":[{"at":1,"server":"b","keys":[]}]}`,
		`{"a":"\ud83d\ude00\u0041\n"}`, `[1,2.5,-0,true,false,null,{}]`, `{"a":01}`, `"\ud800"`, "\"\xff\"", `{"a":1,}`, "\t{ }\r\n", `{"exclude":["x"],"in_transaction":true,"max_staleness_ms":1}`,
	} {
		f.Add([]byte(s))
	}
	codes := strings.Join(Codes(), " ")
	f.Fuzz(func(t *testing.T, body []byte) {
		r := jsonReader{b: body}
		err := r.skip(0)
		if err == nil {
			err = r.end()
		}
		if ours, theirs := err == nil, json.Valid(body); ours && !theirs || theirs && !ours && !stricter(body) {
			t.Fatalf("%q: ours %v (%v), encoding/json %v", body, ours, err, theirs)
		}
		if err != nil {
			checkError(t, err, codes)
			if err.offset > len(body) {
				t.Fatalf("offset %d of %d bytes", err.offset, len(body))
			}
		}
		for _, k := range []kind{kindServe, kindRoute} {
			a := new(ask)
			a.reset(k)
			if err := a.json(&jsonReader{b: body}); err != nil {
				checkError(t, err, codes)
			}
		}
		if items, err := batchItems(body); err != nil {
			checkError(t, err, codes)
		} else if len(items) > MaxBatch || !json.Valid(body) {
			t.Fatalf("a batch of %d items out of %q", len(items), body)
		}
		if reads, err := parseObserved(body); err != nil {
			checkError(t, err, codes)
		} else if len(reads) > MaxObserved {
			t.Fatalf("%d reads", len(reads))
		}
	})
}

// stricter tells what we refuse and encoding/json takes: strings that are not
// UTF-8, halves of surrogate pairs, and deep nesting.
func stricter(body []byte) bool {
	depth := 0
	for _, c := range body {
		if c == '[' || c == '{' {
			depth++
		}
	}
	return bytes.ContainsRune(body, '\ufffd') || !json.Valid([]byte(strings.ToValidUTF8(string(body), "\x00"))) ||
		bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) || depth > maxJSONDepth
}

func checkError(t *testing.T, e *wireError, codes string) {
	t.Helper()
	if !strings.Contains(codes, string(e.code)) || e.status < 400 || e.status > 499 {
		t.Fatalf("error %+v is not one of the list", e)
	}
	if b := e.appendError(nil, "id"); !json.Valid(b) {
		t.Fatalf("error is not JSON: %s", b)
	}
	var w reply
	w.err(e)
	if bytes.Count(w.b, []byte("\n")) != 1 || !bytes.HasSuffix(w.b, []byte("\r\n")) {
		t.Fatalf("error is not one line: %q", w.b)
	}
}

// FuzzFrames: however a stream of bytes is cut, the same commands come out, no
// frame does harm, and memory stays bounded.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{
		"*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n", "PING\r\nPING x\r\n", "*0\r\n*1\r\n$0\r\n\r\n", "*1\r\n$-1\r\n", "*x", "*1\r\n$5\r\nab\r\ncd", "*-1\r\n", "\r\n\n", "*1\r\n$99999999999\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		const maxBytes, maxArgs = 512, 8
		read := func(r io.Reader) (out []string, err string) {
			fr := frames{maxBytes: maxBytes, maxArgs: maxArgs}
			for {
				for {
					args, ok, ferr := fr.next()
					if ferr != nil {
						return out, ferr.Error()
					}
					if !ok {
						break
					}
					if len(args) == 0 || len(args) > maxArgs+1 {
						t.Fatalf("%d arguments", len(args))
					}
					var b strings.Builder
					for _, a := range args {
						b.WriteString(" ")
						b.Write(a)
					}
					out = append(out, b.String())
				}
				if len(fr.buf) > 4*minFrameBuffer {
					t.Fatalf("the buffer grew to %d bytes", len(fr.buf))
				}
				if fr.fill(r) != nil {
					return out, ""
				}
			}
		}
		whole, err1 := read(bytes.NewReader(stream))
		slow, err2 := read(iotest.OneByteReader(bytes.NewReader(stream)))
		if strings.Join(whole, "\n") != strings.Join(slow, "\n") {
			t.Fatalf("cut differently, %q gives %q and %q", stream, whole, slow)
		}
		if (err1 == "") != (err2 == "") && len(stream) < maxBytes {
			t.Fatalf("cut differently, %q fails with %q and %q", stream, err1, err2)
		}
	})
}
