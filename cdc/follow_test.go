package cdc_test

import (
	"errors"
	"fmt"
	"testing"

	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// TestFollowerResumes: it goes on where the sink stands, and reads nothing
// twice.
func TestFollowerResumes(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	r := newRecorder()
	_, run := follow(t, c, r)
	r.wantStarted(t)
	w.numbered(t, 1, 100)
	r.wantNumbered(t, 1, 100)
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	w.numbered(t, 101, 200)
	w.stored(t, 200)
	follow(t, c, r)
	r.wantNumbered(t, 1, 200)
	if len(r.starts) != 1 {
		t.Errorf("%d starts", len(r.starts))
	}
	w.end(t)
}

// TestFollowerPositionIsNotOfThisStream: the same sequence, another message.
func TestFollowerPositionIsNotOfThisStream(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 100)
	w.stored(t, 100)
	for name, spoil := range map[string]func(*recorder){
		"digest":   func(r *recorder) { r.digest[0] ^= 1 },
		"sequence": func(r *recorder) { r.seq += 1000 },
		"before":   func(r *recorder) { r.seq-- },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			_, run := follow(t, c, r)
			r.wantStarted(t)
			r.wantAll(t, w)
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			r.do(func() { spoil(r) })
			f, _ := follow(t, c, r)
			eventually(t, func() (reason string) {
				r.do(func() {
					if len(r.starts) != 2 {
						reason = "no second start"
					}
				})
				return reason
			})
			r.wantAll(t, w)
			if f.Counters().Rebuilds != 1 {
				t.Errorf("%d rebuilds", f.Counters().Rebuilds)
			}
		})
	}
	w.end(t)
}

// failing is a sink that can't take a message.
type failing struct {
	*recorder
	cold bool // and says so
	left int
}

var errFull = errors.New("disk full")

func (s *failing) Writes(seq uint64, m *event.Message) error {
	if s.left--; s.left == 0 {
		s.do(func() { s.has = !s.cold })
		return errFull
	}
	return s.recorder.Writes(seq, m)
}

func TestSinkFails(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{BatchBytes: 600}, facts(upTo(0)))
	w.numbered(t, 1, 50)
	w.stored(t, 50)

	s := &failing{recorder: newRecorder(), left: 5}
	f := cdc.NewFollower(c, cdc.FollowerOptions{Sink: s})
	if err := start(t, f.Run).wait(t); !errors.Is(err, errFull) {
		t.Errorf("ended with %v, want %v", err, errFull)
	}
	s = &failing{recorder: newRecorder(), left: 5, cold: true}
	f = cdc.NewFollower(c, cdc.FollowerOptions{Sink: s})
	start(t, f.Run)
	eventually(t, func() (reason string) {
		s.do(func() {
			if len(s.starts) != 2 || s.seq < w.Counters().AckedSeq {
				reason = fmt.Sprintf("%d starts, at %d of %d", len(s.starts), s.seq, w.Counters().AckedSeq)
			}
		})
		return reason
	})
	w.end(t)
}

// TestNewerFormatStopsTheReader: it can't know what it does not understand.
func TestNewerFormatStopsTheReader(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.end(t)
	r := newRecorder()
	_, run := follow(t, c, r)
	r.wantStarted(t)
	if _, err := c.JetStream().Publish(t.Context(), c.WritesSubject(), []byte{event.Format + 1, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if err := run.wait(t); !errors.Is(err, event.ErrNewerFormat) {
		t.Errorf("ended with %v, want %v", err, event.ErrNewerFormat)
	}
	// A writer must not write over it either.
	if _, _, err := cdc.OpenWriter(t.Context(), c, cdc.WriterOptions{}); !errors.Is(err, event.ErrNewerFormat) {
		t.Errorf("writer opened: %v", err)
	}
}

// TestForeignBytes: what nobody of ours wrote rebuilds readers, and begins a
// history when the next writer comes.
func TestForeignBytes(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 5)
	w.stored(t, 5)
	w.end(t)
	r := newRecorder()
	follow(t, c, r)
	r.wantAll(t, w)
	if _, err := c.JetStream().Publish(t.Context(), c.WritesSubject(), []byte{event.Format, 1, 99}); err != nil {
		t.Fatal(err)
	}
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(5)))
	if !w.tail.Empty {
		t.Error("the tail goes on behind foreign bytes")
	}
	w.numbered(t, 6, 9)
	r.wantAll(t, w)
	r.wantStarts(t, 2)
	r.wantNumbered(t, 6, 9)
	w.end(t)
}

// TestOtherSecret: digests made with another key answer nothing here.
func TestOtherSecret(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 5)
	w.stored(t, 5)
	w.end(t)
	c.ForgetSecret(key.Secret{1})
	r := newRecorder()
	_, run := follow(t, c, r)
	if err := run.wait(t); !errors.Is(err, cdc.ErrSecret) {
		t.Errorf("ended with %v, want %v", err, cdc.ErrSecret)
	}
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(5)))
	defer w.end(t)
	_, run = follow(t, c, r)
	r.wantStarted(t)
	if cp := r.starts[0]; cp.History != 2 {
		t.Errorf("started in history %d, want 2", cp.History)
	}
	if err := run.stop(); err != nil {
		t.Error(err)
	}
}
