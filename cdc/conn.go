package cdc

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidegate/cdc/key"
)

// Defaults of [Options] and [WriterOptions] that the configuration has too.
const (
	DefaultWritesMaxAge         = 24 * time.Hour
	DefaultWritesMaxBytes int64 = 2 << 30
	DefaultCheckpointAge        = time.Minute
)

// Options of [Open]. The zero value of each field but Cluster and Log has the
// documented default.
type Options struct {
	// Cluster is the name of the MySQL cluster. Required.
	Cluster string
	// URL of NATS servers, separated by commas. Empty: a server inside this
	// process, which opens no port and keeps its store under DataDir.
	URL string
	// DataDir also keeps the numbers that this process has drawn, so that none is
	// given twice after NATS stepped back. It may be empty with a URL.
	DataDir string
	// Client is the name under which NATS lists the connection. Default
	// "tidegate".
	Client string

	// External servers only.
	TLS             *tls.Config
	CredentialsFile string
	User, Password  string
	Token           string

	// Follow: this process only reads; it waits for streams that do not exist
	// yet and changes none.
	Follow bool
	// Replicas of each stream: 1 (default) or 3.
	Replicas int
	// WritesMaxAge and WritesMaxBytes bound the WRITES stream; the older one
	// goes silently. Defaults: [DefaultWritesMaxAge], [DefaultWritesMaxBytes].
	WritesMaxAge   time.Duration
	WritesMaxBytes int64
	// SyncInterval is how often the embedded server flushes its store to disk:
	// what a power cut may take back. Default 10 s.
	SyncInterval time.Duration

	// ConnectTimeout bounds one attempt to connect, RequestTimeout one request
	// to JetStream. Defaults 2 s, 5 s. Reconnecting never gives up; its waits
	// grow from ReconnectWait (100 ms) to ReconnectMaxWait (0.5 s).
	ConnectTimeout, RequestTimeout, ReconnectWait, ReconnectMaxWait time.Duration

	Log *slog.Logger // required
}

func (o *Options) setDefaults() {
	setDefault(&o.Client, "tidegate")
	setDefault(&o.Replicas, 1)
	setDefault(&o.WritesMaxAge, DefaultWritesMaxAge)
	setDefault(&o.WritesMaxBytes, DefaultWritesMaxBytes)
	setDefault(&o.SyncInterval, 10*time.Second)
	setDefault(&o.ConnectTimeout, 2*time.Second)
	setDefault(&o.RequestTimeout, 5*time.Second)
	setDefault(&o.ReconnectWait, 100*time.Millisecond)
	setDefault(&o.ReconnectMaxWait, 500*time.Millisecond)
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// validate reports everything that is wrong at once.
func (o *Options) validate() error {
	var errs []error
	bad := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, errors.New(text))
		}
	}
	bad(o.Cluster == "", "cluster has no name")
	bad(o.URL == "" && o.DataDir == "", "embedded NATS needs data_dir")
	bad(o.URL == "" && o.Replicas > 1, "embedded NATS has one replica")
	bad(o.Replicas != 1 && o.Replicas != 3, "nats replicas must be 1 or 3")
	bad(o.URL == "" && (o.TLS != nil || o.CredentialsFile != "" || o.User != "" || o.Token != ""), "credentials and TLS are for external NATS: set its url")
	bad(o.WritesMaxAge < time.Minute, "retention of WRITES below one minute")
	bad(o.WritesMaxBytes < 16<<20, "retention of WRITES below 16 MiB")
	bad(o.Log == nil, "no logger")
	return errors.Join(errs...)
}

// duplicateWindow is how long JetStream remembers message ids: the second belt
// against doubled messages, the tail read being the first. Why it is not JetStream's
// own two minutes: decisions/duplicate-window.md.
const duplicateWindow = 10 * time.Second

// Conn is a connection to the streams of one cluster. Its methods may be called
// at once by many.
type Conn struct {
	o      Options
	names  names
	log    *slog.Logger
	server *embedded // nil with external NATS
	// process is random: it tells this process's lease keys from others'.
	process string
	nc      *nats.Conn
	js      jetstream.JetStream
	kv      store
	secret  key.Secret
	given   given

	closed sync.Once

	mu      sync.Mutex
	up      bool
	changed chan struct{} // closed when up changes or a reconnect happened
	// refused is why the newest attempt to connect failed; nil while connected.
	refused error
	// life ends with the connection: what was asked over it is not answered.
	life context.Context
	end  context.CancelFunc
}

// Open connects to NATS, or starts the embedded server, and makes streams and
// bucket where they do not exist. It waits for an absent NATS until ctx ends.
// Two processes may open at once.
func Open(ctx context.Context, o Options) (*Conn, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open streams: %w", err)
	}
	c := &Conn{o: o, names: namesOf(o.Cluster), log: o.Log.With("cluster", o.Cluster), process: cryptorand.Text(), changed: make(chan struct{})}
	c.life, c.end = context.WithCancel(context.Background())
	if o.URL == "" {
		e, err := openEmbedded(o.Cluster, o.DataDir, o.SyncInterval, c.log)
		if err != nil {
			return nil, fmt.Errorf("open streams: %w", err)
		}
		c.server = e
	}
	err := c.connect()
	if err == nil {
		err = c.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open streams: %w", err), c.Close())
	}
	return c, nil
}

// Close ends the connection and the embedded server. It may be called twice.
func (c *Conn) Close() error {
	var err error
	c.closed.Do(func() {
		if c.nc != nil {
			c.nc.Close()
		}
		c.mu.Lock()
		c.end()
		c.mu.Unlock()
		if c.server != nil {
			err = c.server.close()
		}
	})
	return err
}

func (c *Conn) connect() error {
	opts := []nats.Option{
		nats.SetCustomDialer(dialer{c}), nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.refuse(err) }),
		nats.Name(c.o.Client), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.Timeout(c.o.ConnectTimeout),
		nats.ReconnectBufSize(-1), // a publish while away fails at once: what is sent late is sent twice
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.NoCallbacksAfterClientClose(),
		nats.CustomReconnectDelay(func(attempts int) time.Duration {
			wait := min(c.o.ReconnectWait<<min(attempts, 10), c.o.ReconnectMaxWait)
			return wait/2 + rand.N(wait/2+1)
		}),
		nats.ConnectHandler(func(*nats.Conn) { c.status(true, false, nil) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.status(true, true, nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.status(false, false, err) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			if s != nil {
				c.log.Warn("NATS reports an error", "subject", s.Subject, "error", err)
				return
			}
			c.log.Warn("NATS reports an error", "error", err)
		}),
	}
	url := c.o.URL
	if c.server != nil {
		opts = append(opts, nats.InProcessServer(c.server))
	}
	if c.o.TLS != nil {
		opts = append(opts, nats.Secure(c.o.TLS))
	}
	if c.o.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(c.o.CredentialsFile))
	}
	if c.o.User != "" {
		opts = append(opts, nats.UserInfo(c.o.User, c.o.Password))
	}
	if c.o.Token != "" {
		opts = append(opts, nats.Token(c.o.Token))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	c.nc = nc
	c.mu.Lock()
	c.up = c.up || nc.IsConnected()
	c.mu.Unlock()
	c.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(c.o.RequestTimeout))
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	return nil
}

// status takes in that the connection is up or down; again tells of another one,
// also where the loss of the one before went unnoticed.
func (c *Conn) status(up, again bool, cause error) {
	c.mu.Lock()
	was := c.up
	c.up = up
	if up {
		c.refused = nil
	}
	close(c.changed)
	c.changed = make(chan struct{})
	if !up || again {
		c.end()
	}
	if up && c.life.Err() != nil {
		c.life, c.end = context.WithCancel(context.Background())
	}
	c.mu.Unlock()
	switch {
	case up && !was:
		c.log.Info("connected to NATS")
	case !up && was:
		if cause == nil {
			cause = errors.New("it was closed")
		}
		c.log.Warn("connection to NATS lost: routers are blind, and nothing is written, until it is back", "servers", c.servers(), "why", cause)
	}
}

// dialer connects as nats.go would, and keeps why it could not: nats.go tells
// nobody, and answers requests meanwhile with what became of their buffer.
type dialer struct{ c *Conn }

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, d.c.o.ConnectTimeout)
	if err != nil {
		d.c.refuse(err)
	}
	return conn, err
}

func (c *Conn) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil || !errors.Is(err, nats.ErrNoServers) { // which says less than the attempt before
		c.refused = err
	}
}

// servers are the NATS servers for people, without the secrets of their URLs.
func (c *Conn) servers() string {
	if c.o.URL == "" {
		return "embedded"
	}
	list := strings.Split(c.o.URL, ",")
	for i, s := range list {
		s = strings.TrimSpace(s)
		if at := strings.LastIndex(s, "@"); at >= 0 {
			scheme, _, ok := strings.Cut(s, "://")
			if s = s[at+1:]; ok {
				s = scheme + "://" + s
			}
		}
		list[i] = s
	}
	return strings.Join(list, ",")
}

// awayError is an error of a request that could not be sent, in words that say
// why.
type awayError struct {
	text string
	err  error
}

func (e *awayError) Error() string { return e.text }
func (e *awayError) Unwrap() error { return e.err }

// sayAway puts the reason in place of what nats.go says of a request while it is
// not connected. What the error is stays.
func (c *Conn) sayAway(err error) error {
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return err
	}
	c.mu.Lock()
	refused := c.refused
	c.mu.Unlock()
	text := "no connection to NATS at " + c.servers()
	if refused != nil {
		text += ": " + refused.Error()
	}
	return &awayError{text, err}
}

// Connected tells whether NATS is reachable, and returns a channel that is
// closed at the next change (a reconnect that went unnoticed included).
func (c *Conn) Connected() (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up, c.changed
}

// Cluster is the name of the cluster whose streams these are.
func (c *Conn) Cluster() string { return c.o.Cluster }

// Secret is the key of the stream's digests (rules §5.5).
func (c *Conn) Secret() key.Secret { return c.secret }

// Hasher makes digests with the stream's secret.
func (c *Conn) Hasher() key.Hasher { return key.NewHasher(c.secret) }

// prepare makes what does not exist, and reads or makes the secret.
func (c *Conn) prepare(ctx context.Context) error {
	return c.retry(ctx, "prepare streams", func(ctx context.Context) error {
		kv, err := c.bucket(ctx)
		if err != nil {
			return err
		}
		c.kv = kvStore{kv, c.sayAway}
		for _, cfg := range []jetstream.StreamConfig{c.writesConfig(), c.stateConfig()} {
			if err := c.stream(ctx, cfg); err != nil {
				return err
			}
		}
		c.secret, err = loadSecret(ctx, c.kv, c.o.Follow)
		return err
	})
}

func (c *Conn) writesConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: c.names.writes, Subjects: []string{c.names.writesSubject}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, MaxAge: c.o.WritesMaxAge, MaxBytes: c.o.WritesMaxBytes,
		Replicas: c.o.Replicas, Duplicates: duplicateWindow, Description: "Tidegate: what committed transactions wrote",
	}
}

func (c *Conn) stateConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: c.names.state, Subjects: []string{c.names.posPrefix + "*", c.names.schemaPrefix + "*.*"}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1, MaxBytes: -1, // none, as NATS says it
		Replicas: c.o.Replicas, Duplicates: time.Second, Description: "Tidegate: newest state of servers, newest definitions of tables",
	}
}

// stream makes a stream, or brings the limits of an existing one up to date.
func (c *Conn) stream(ctx context.Context, cfg jetstream.StreamConfig) error {
	s, err := c.js.Stream(ctx, cfg.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && c.o.Follow:
		return fmt.Errorf("stream %s: %w", cfg.Name, errNotYet)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		// Another process may make it meanwhile: the same configuration is no
		// error, another one is looked at by the next attempt.
		if _, err := c.js.CreateStream(ctx, cfg); err != nil {
			return c.explain(cfg, fmt.Errorf("create stream %s: %w", cfg.Name, err))
		}
		return nil
	case err != nil:
		return fmt.Errorf("look up stream %s: %w", cfg.Name, err)
	case c.o.Follow:
		return nil
	}
	have := s.CachedInfo().Config
	if have.MaxAge == cfg.MaxAge && have.MaxBytes == cfg.MaxBytes && have.Replicas == cfg.Replicas && have.Duplicates == cfg.Duplicates {
		return nil
	}
	c.log.Info("changing limits of stream", "stream", cfg.Name, "max_age", cfg.MaxAge, "max_bytes", cfg.MaxBytes, "replicas", cfg.Replicas)
	if _, err := c.js.UpdateStream(ctx, cfg); err != nil {
		return c.explain(cfg, fmt.Errorf("update stream %s: %w", cfg.Name, err))
	}
	return nil
}

// noRoom are JetStream's codes for a reservation that its limits do not allow:
// of a server, of the cluster, of the account.
var noRoom = []jetstream.ErrorCode{10047, 10023, 10002}

// explain says what to do when NATS can't reserve what a stream may grow to.
func (c *Conn) explain(cfg jetstream.StreamConfig, err error) error {
	var api *jetstream.APIError
	if cfg.MaxBytes > 0 && errors.As(err, &api) && slices.Contains(noRoom, api.ErrorCode) {
		return fmt.Errorf("%w: it may grow to %d bytes on each of %d servers; raise JetStream's max_file_store, or lower the retention of WRITES", err, cfg.MaxBytes, cfg.Replicas)
	}
	return err
}

func (c *Conn) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := c.js.KeyValue(ctx, c.names.bucket)
	switch {
	case err == nil:
		return kv, nil
	case !errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, fmt.Errorf("open bucket %s: %w", c.names.bucket, err)
	case c.o.Follow:
		return nil, fmt.Errorf("bucket %s: %w", c.names.bucket, errNotYet)
	}
	kv, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: c.names.bucket, History: 8, Storage: jetstream.FileStorage, Replicas: c.o.Replicas,
		Description: "Tidegate: what must survive its streams",
	})
	if err != nil {
		return nil, fmt.Errorf("create bucket %s: %w", c.names.bucket, err)
	}
	return kv, nil
}

// errNotYet: something that a writer makes does not exist yet.
var errNotYet = errors.New("does not exist yet")

// retry repeats fn while NATS is away, or while what is looked for does not
// exist yet, until ctx ends.
func (c *Conn) retry(ctx context.Context, what string, fn func(context.Context) error) error {
	var pause backoff
	var last error // the newest reason that says more than that ctx has ended
	notYet := false
	for {
		err := c.bounded(ctx, fn)
		if err == nil || ctx.Err() == nil && !isTransport(err) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, errNotYet) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) && !errors.Is(err, jetstream.ErrBucketExists) && !isConflict(err) {
			return err
		}
		ended := ctx.Err()
		if last == nil || ended == nil || !errors.Is(err, ended) {
			last = err
		}
		if ended != nil {
			return fmt.Errorf("%s: %w (last: %w)", what, context.Cause(ctx), last)
		}
		if failed := c.failure(); failed != nil {
			return fmt.Errorf("%s: %w", what, failed)
		}
		switch was := notYet; {
		case errors.Is(err, errNotYet):
			notYet = true
			if !was {
				c.log.Warn("waiting for a tailer to make the streams: start tidegate tail, or run, with this cluster and NATS; nothing is answered, and no port opened, until then",
					"missing", err, "servers", c.servers())
			}
		case pause.attempts == 0:
			c.log.Warn("waiting for NATS", "for", what, "error", err)
		}
		if !pause.wait(ctx) {
			return fmt.Errorf("%s: %w (last: %w)", what, context.Cause(ctx), last)
		}
	}
}

// bounded runs one request with the request timeout. It ends with the connection:
// NATS does not tell that what it was asked over a lost one has no answer.
func (c *Conn) bounded(ctx context.Context, fn func(context.Context) error) error {
	c.mu.Lock()
	life := c.life
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.o.RequestTimeout)
	defer cancel()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	stop := context.AfterFunc(life, func() { cut(errDisconnected) })
	defer stop()
	err := c.sayAway(fn(ctx))
	if err != nil && errors.Is(context.Cause(ctx), errDisconnected) {
		// Its words alone: nobody who asked has cancelled anything.
		return fmt.Errorf("%w: %s", errDisconnected, err.Error())
	}
	return err
}

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// backoff waits longer from attempt to attempt, with jitter.
type backoff struct{ attempts int }

// wait returns false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := min(minBackoff<<min(b.attempts, 10), maxBackoff)
	b.attempts++
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
