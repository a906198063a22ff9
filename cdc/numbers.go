package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"tidegate/cdc/event"
)

// Epochs, writer generations, timelines and histories are numbered by counters
// in KV, and no number may be given twice (rules §1). An ack of KV is no fsync:
// after a power cut a counter may be what it was before. So a number is also
// drawn beyond everything that is known to have been given: what the streams
// name (STATE and WRITES lose other parts of their tails), what this process
// has read or drawn, and what processes with this data_dir drew, which is on the
// disk before a number is used.

// numbers are the largest ones known of each kind.
type numbers struct {
	Epoch      uint64 `json:"epoch,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Timeline   uint64 `json:"timeline,omitempty"`
	History    uint64 `json:"history,omitempty"`
}

func (n *numbers) raise(o numbers) {
	n.Epoch, n.Generation = max(n.Epoch, o.Epoch), max(n.Generation, o.Generation)
	n.Timeline, n.History = max(n.Timeline, o.Timeline), max(n.History, o.History)
}

// given is what a connection knows to have been given.
type given struct {
	mu  sync.Mutex
	max numbers
}

func (g *given) note(n numbers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.max.raise(n)
}

func (g *given) known() numbers {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.max
}

// numbersOf are those that a message of WRITES names.
func numbersOf(m *event.Message) numbers {
	n := numbers{Generation: uint64(m.Generation), Timeline: uint64(m.Timeline)}
	for _, it := range m.Items {
		switch v := it.(type) {
		case *event.Announcement:
			n.raise(numbers{Epoch: uint64(v.Epoch), History: uint64(v.History)})
		case *event.Checkpoint:
			n.raise(numbers{Epoch: uint64(v.Announced.Epoch), History: uint64(v.History)})
		default:
			return n // these two stand alone
		}
	}
	return n
}

// floor is what has been given as far as anything here tells.
func (c *Conn) floor(ctx context.Context) (numbers, error) {
	if err := c.noteState(ctx); err != nil {
		return numbers{}, err
	}
	if err := c.noteWrites(ctx); err != nil {
		return numbers{}, err
	}
	n, err := loadNumbers(c.numbersFile())
	if err != nil {
		return numbers{}, err
	}
	c.given.note(n)
	return c.given.known(), nil
}

// noteState takes the epochs of all servers' last states in.
func (c *Conn) noteState(ctx context.Context) error {
	s, err := c.js.Stream(ctx, c.names.state)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", c.names.state, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(c.names.posPrefix+"*"))
	if err != nil {
		return fmt.Errorf("list the servers of stream %s: %w", c.names.state, err)
	}
	for subject := range info.State.Subjects {
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read last message of %s: %w", subject, err)
		}
		st, err := event.DecodeServerState(m.Data)
		if err != nil {
			return fmt.Errorf("last message of %s: %w", subject, err)
		}
		c.given.note(numbers{Epoch: uint64(st.Epoch)})
	}
	return nil
}

// noteWrites takes in what the newest message and the newest checkpoint say.
// What is no message of ours numbers nothing; the writer begins anew there.
func (c *Conn) noteWrites(ctx context.Context) error {
	inc, err := loadIncarnation(ctx, c.kv)
	if err != nil {
		return err
	}
	refs, err := loadCheckpoints(ctx, c.kv, inc)
	if err != nil {
		return err
	}
	s, err := c.js.Stream(ctx, c.names.writes)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", c.names.writes, err)
	}
	at := []uint64{s.CachedInfo().State.LastSeq}
	if len(refs) > 0 {
		at = append(at, refs[len(refs)-1].Seq)
	}
	for _, seq := range at {
		if seq == 0 {
			continue
		}
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read message %d of %s: %w", seq, c.names.writes, err)
		}
		if d, err := event.DecodeMessage(m.Data); err == nil {
			c.given.note(numbersOf(d))
		} else if errors.Is(err, event.ErrNewerFormat) {
			return corrupt(seq, err)
		}
	}
	return nil
}

// draw takes the next number of a counter: beyond KV's and beyond the floor.
// The first is 1. kept names it for the file.
func (c *Conn) draw(ctx context.Context, counter string, of func(numbers) uint64, kept func(uint64) numbers) (uint64, error) {
	known, err := c.floor(ctx)
	if err != nil {
		return 0, err
	}
	var n uint64
	err = change(ctx, c.kv, counter, func(old []byte) ([]byte, error) {
		n = 0
		if len(old) > 0 {
			var err error
			if n, err = strconv.ParseUint(string(old), 10, 64); err != nil {
				return nil, fmt.Errorf("counter %s: %w", counter, err)
			}
		}
		if n = max(n, of(known)); n == math.MaxUint64 {
			return nil, fmt.Errorf("counter %s is used up", counter)
		}
		n++
		return strconv.AppendUint(nil, n, 10), nil
	})
	if err != nil {
		return 0, err
	}
	return n, c.keep(kept(n))
}

// keep makes sure that what was given is known from now on. A crash before it
// wastes the number: it was not used.
func (c *Conn) keep(n numbers) error {
	c.given.note(n)
	return saveNumbers(c.numbersFile(), n)
}

// numbersFile is empty without a data directory.
func (c *Conn) numbersFile() string {
	if c.o.DataDir == "" {
		return ""
	}
	return filepath.Join(c.o.DataDir, c.names.bucket+".numbers")
}

func loadNumbers(path string) (numbers, error) {
	var n numbers
	if path == "" {
		return n, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return n, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return n, fmt.Errorf("read the numbers given: %s: %w", path, err)
	}
	return n, nil
}

// saveNumbers raises what the file has. Processes that share the directory take
// turns.
func saveNumbers(path string, n numbers) (err error) {
	if path == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the numbers given: %w", err)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }() // and the lock with it
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	old, err := loadNumbers(path)
	if err != nil {
		return err
	}
	n.raise(old)
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := writeSynced(path, b); err != nil {
		return err
	}
	return dir.Sync()
}

// writeSynced replaces a file: a crash leaves the whole old or the whole new.
func writeSynced(path string, b []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
