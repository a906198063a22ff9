package cdc

import (
	"context"
	"sync"
	"time"
)

// watchPrefix precedes a server's name in the key of its watch.
const watchPrefix = "watch."

// Watch is the right of one process to watch one server, so that the states of
// a pair of tailers do not take turns. It is renewed until Close.
type Watch struct {
	stop context.CancelFunc
	done chan struct{}
	lost chan struct{}
	once sync.Once
}

// OpenWatch waits until nobody else watches the server (a standby of a pair
// stays here) and takes the watch. name tells people who watches.
func OpenWatch(ctx context.Context, c *Conn, server, name string) (*Watch, error) {
	l, err := acquireLease(ctx, c, watchPrefix+SubjectToken(server), name, sighting{})
	if err != nil {
		return nil, err
	}
	keep, stop := context.WithCancel(context.Background())
	w := &Watch{stop: stop, done: make(chan struct{}), lost: make(chan struct{})}
	go func() {
		defer close(w.done)
		if err := l.keep(keep, c.log); err != nil {
			close(w.lost)
		}
	}()
	return w, nil
}

// Lost is closed when another process has taken the watch: this one was
// silent for too long.
func (w *Watch) Lost() <-chan struct{} { return w.lost }

// Close gives the watch back, so that a standby takes over at once. It may be
// called twice.
func (w *Watch) Close() {
	w.once.Do(w.stop)
	<-w.done
}

// LeaderObserver notes how long the leader key has stayed the same, so that a
// standby that becomes a candidate need not wait from then on: with it a pair's
// takeover is within 3 s. Run may be called once.
type LeaderObserver struct {
	conn *Conn

	mu   sync.Mutex
	last sighting
}

// NewLeaderObserver returns an observer whose Run has to be started.
func NewLeaderObserver(c *Conn) *LeaderObserver { return &LeaderObserver{conn: c} }

// Run observes until ctx ends.
func (o *LeaderObserver) Run(ctx context.Context) error {
	tick := time.NewTicker(leasePoll)
	defer tick.Stop()
	for {
		_, rev, err := o.conn.kvGet(ctx, keyLeader)
		o.mu.Lock()
		if err != nil {
			o.last = sighting{} // an unanswered look proves nothing of the holder
		} else {
			o.last.look(rev)
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (o *LeaderObserver) seen() sighting {
	if o == nil {
		return sighting{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}
