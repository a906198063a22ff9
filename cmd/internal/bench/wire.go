package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"tidegate/testenv"
)

// respRow holds one SERVE against one GET on a real Redis: one connection each,
// one question at a time.
func (b *bench) respRow(ctx context.Context) ([]Figure, error) {
	return b.wireRow(ctx, "resp", func(a addresses) string { return a.RESP }, askRESP{}, 1.5, 1)
}

// httpRow does the same with GET /v1/serve on a kept connection.
func (b *bench) httpRow(ctx context.Context) ([]Figure, error) {
	return b.wireRow(ctx, "http", func(a addresses) string { return a.HTTP }, askHTTP{}, 6, 3)
}

// protocol asks and understands one question.
type protocol interface {
	appendQuestion(dst []byte, row int) []byte
	// readYes reads one whole answer and tells whether it was a yes.
	readYes(r *bufio.Reader) (bool, error)
}

func (b *bench) wireRow(ctx context.Context, name string, addr func(addresses) string, p protocol, must, aim float64) (figures []Figure, err error) {
	router, err := b.newChild(name, "router", reported)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, router.close(ctx)) }()
	at, err := router.start(ctx)
	if err != nil {
		return nil, err
	}
	redis, err := testenv.StartRedis(ctx, testenv.RedisOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, redis.Close()) }()
	serve, err := dial(ctx, addr(at))
	if err != nil {
		return nil, err
	}
	defer serve.Close()
	get, err := dial(ctx, redis.Addr())
	if err != nil {
		return nil, err
	}
	defer get.Close()
	if err := fillRedis(get); err != nil {
		return nil, err
	}
	ours := &asker{conn: serve, r: bufio.NewReader(serve), p: p, n: b.effort.asks}
	theirs := &asker{conn: get, r: bufio.NewReader(get), p: askRedis{}, n: b.effort.asks}
	if err := errors.Join(ours.warm(ctx), theirs.warm(ctx)); err != nil {
		return nil, err
	}
	p50, redis50, err := rounds(ctx, b.effort.rounds, ours.round, theirs.round)
	if err != nil {
		return nil, err
	}
	if theirs.yes < theirs.all {
		return nil, fmt.Errorf("redis lacks %d of %d values: the baseline is none", theirs.all-theirs.yes, theirs.all)
	}
	return []Figure{
		figure(name+".p50", median(p50), "us", lower).against(median(redis50), medianRatio(p50, redis50)).must(must).aim(aim),
		figure(name+".p99", median(ours.p99), "us", lower).against(median(theirs.p99), medianRatio(ours.p99, theirs.p99)),
		figure(name+".yes_share", ours.yesShare(), "share", higher),
	}, nil
}

// asker asks on one connection, one question after the other.
type asker struct {
	conn net.Conn
	r    *bufio.Reader
	p    protocol
	n    int // questions in a round

	buf      []byte
	times    []float64
	p99      []float64 // one a round
	yes, all int
}

// roundTimeout bounds a round: a process that hangs is an error, not a figure.
const roundTimeout = time.Minute

// round returns the median time of a question in microseconds.
func (a *asker) round(ctx context.Context) (float64, error) {
	if err := a.conn.SetDeadline(time.Now().Add(roundTimeout)); err != nil {
		return 0, err
	}
	a.times = a.times[:0]
	for range a.n {
		a.buf = a.p.appendQuestion(a.buf[:0], rand.IntN(wireRecords))
		before := time.Now()
		if _, err := a.conn.Write(a.buf); err != nil {
			return 0, err
		}
		yes, err := a.p.readYes(a.r)
		if err != nil {
			return 0, err
		}
		a.times = append(a.times, float64(time.Since(before))/1e3)
		a.all++
		if yes {
			a.yes++
		}
	}
	a.p99 = append(a.p99, quantile(a.times, 0.99))
	return median(a.times), ctx.Err()
}

// warm asks a tenth of a round and forgets it.
func (a *asker) warm(ctx context.Context) error {
	w := asker{conn: a.conn, r: a.r, p: a.p, n: a.n/10 + 1}
	if _, err := w.round(ctx); err != nil {
		return err
	}
	if w.yes == 0 {
		return fmt.Errorf("%T: no answer of %d was a yes", a.p, w.all)
	}
	return nil
}

func (a *asker) yesShare() float64 { return float64(a.yes) / float64(max(a.all, 1)) }

// askRESP is SERVE.
type askRESP struct{}

func (askRESP) appendQuestion(dst []byte, row int) []byte {
	dst = append(dst, "*5\r\n$5\r\nSERVE\r\n$1\r\nb\r\n$4\r\nKEYS\r\n$1\r\n1\r\n"...)
	return appendBulk(dst, "app.posts/", row)
}

func (askRESP) readYes(r *bufio.Reader) (bool, error) {
	line, err := respLine(r)
	if err != nil {
		return false, err
	}
	if line[0] != '*' {
		return false, fmt.Errorf("SERVE answered %q", line)
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 1 {
		return false, fmt.Errorf("SERVE answered %q", line)
	}
	first, err := respLine(r)
	if err != nil {
		return false, err
	}
	yes := string(first) == ":1"
	for range n - 1 {
		if err := skipReply(r); err != nil {
			return false, err
		}
	}
	return yes, nil
}

// askRedis is GET; a value is a yes, none is a no.
type askRedis struct{}

func (askRedis) appendQuestion(dst []byte, row int) []byte {
	dst = append(dst, "*2\r\n$3\r\nGET\r\n"...)
	return appendBulk(dst, "app.posts/", row)
}

func (askRedis) readYes(r *bufio.Reader) (bool, error) {
	head, err := r.Peek(2)
	if err != nil {
		return false, err
	}
	found := head[0] == '$' && head[1] != '-'
	return found, skipReply(r)
}

// fillRedis sets a value about as large as an answer to SERVE under every key.
func fillRedis(conn net.Conn) error {
	r := bufio.NewReader(conn)
	const batch = 1000
	value := "$64\r\n" + string(bytes.Repeat([]byte{'v'}, 64)) + "\r\n"
	for from := 0; from < wireRecords; from += batch {
		var buf []byte
		for i := range batch {
			buf = appendBulk(append(buf, "*3\r\n$3\r\nSET\r\n"...), "app.posts/", from+i)
			buf = append(buf, value...)
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		for range batch {
			if err := skipReply(r); err != nil {
				return fmt.Errorf("SET on Redis: %w", err)
			}
		}
	}
	return nil
}

func appendBulk(dst []byte, prefix string, n int) []byte {
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], int64(n), 10)
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(prefix)+len(d)), 10)
	dst = append(append(append(dst, "\r\n"...), prefix...), d...)
	return append(dst, "\r\n"...)
}

// respLine reads one line without its end; an error reply is an error.
func respLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return nil, errors.New("an empty line is no reply")
	}
	if line[0] == '-' {
		return nil, fmt.Errorf("error reply: %s", line[1:])
	}
	return line, nil
}

// skipReply reads one reply of any sort.
func skipReply(r *bufio.Reader) error {
	line, err := respLine(r)
	if err != nil {
		return err
	}
	if line[0] != '$' && line[0] != '*' {
		return nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil:
		return fmt.Errorf("reply %q: %w", line, err)
	case n < 0:
		return nil
	case line[0] == '$':
		_, err = r.Discard(n + 2)
		return err
	}
	for range n {
		if err := skipReply(r); err != nil {
			return err
		}
	}
	return nil
}

// askHTTP is GET /v1/serve on a kept connection, written and read by hand: the
// server is measured, not a client library.
type askHTTP struct{}

func (askHTTP) appendQuestion(dst []byte, row int) []byte {
	dst = append(dst, "GET /v1/serve?replica=b&key=app.posts/"...)
	dst = strconv.AppendInt(dst, int64(row), 10)
	return append(dst, " HTTP/1.1\r\nHost: bench\r\n\r\n"...)
}

func (askHTTP) readYes(r *bufio.Reader) (bool, error) {
	const length = "content-length:"
	size := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return false, fmt.Errorf("serve answered %q", line)
		}
		if len(line) == 0 {
			break
		}
		if len(line) > len(length) && bytes.EqualFold(line[:len(length)], []byte(length)) {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(line[len(length):]))); err != nil {
				return false, err
			}
		}
	}
	if size < 0 || size > r.Size() {
		return false, fmt.Errorf("an answer of %d bytes was not expected", size)
	}
	body, err := r.Peek(size)
	if err != nil {
		return false, err
	}
	yes := bytes.HasPrefix(body, []byte(`{"serve":true`))
	_, err = r.Discard(size)
	return yes, err
}

// get reads one page.
func get(ctx context.Context, url string) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Close = true // nothing stays open between two measurements
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, 4<<20))
	return body, res.StatusCode, err
}
