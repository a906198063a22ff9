package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"tidegate/router/routertest"
)

// Both benchmarks are one caller on one connection, one question at a time: what
// the wire adds to a decision. The ratios to Redis come from `tidegate bench`.

func BenchmarkRESPServe(b *testing.B) {
	s := start(b, routertest.Healthy(b))
	conn, err := net.Dial("tcp", s.resp)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	q := []byte(cmd("SERVE", "c", "KEYS", "1", "app.posts/42"))
	want := len("*7\r\n:1\r\n$7\r\napplied\r\n$-1\r\n$-1\r\n:0\r\n" + identC)
	buf := make([]byte, want)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(q); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHTTPServe(b *testing.B) {
	s := start(b, routertest.Healthy(b))
	conn, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	q := []byte("GET /v1/serve?replica=c&key=app.posts/42 HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(q); err != nil {
			b.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 200 {
			b.Fatal(err, res)
		}
		if _, err := r.Discard(int(res.ContentLength)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRESPPipeline(b *testing.B) {
	s := start(b, routertest.Healthy(b))
	conn, err := net.Dial("tcp", s.resp)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	const batch = 50
	var q []byte
	for i := range batch {
		q = append(q, cmd("SERVE", "c", "KEYS", "1", fmt.Sprintf("app.posts/%02d", 10+i))...)
	}
	want := batch * len("*7\r\n:1\r\n$7\r\napplied\r\n$-1\r\n$-1\r\n:0\r\n"+identC)
	buf := make([]byte, want)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(q); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/serve")
}
