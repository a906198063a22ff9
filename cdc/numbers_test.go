package cdc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// TestNumbersAreNeverGivenTwice: the counters in KV step back, as after a power
// cut, and whatever else still knows of the numbers that were given is enough.
func TestNumbersAreNeverGivenTwice(t *testing.T) {
	for _, tt := range []struct {
		name string
		// forget loses everything but what the case is named after.
		forget func(t *testing.T, c *cdc.Conn)
		dir    bool // the data directory's file stays
		same   bool // the same connection goes on
	}{
		{"the streams know", func(*testing.T, *cdc.Conn) {}, false, false},
		{"the data directory knows", emptyStreams, true, false},
		{"the process knows", emptyStreams, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// An external server, so that each process can have its own directory.
			srv := natsServer(t, nil)
			o := options(t, t.TempDir())
			o.URL = srv.ClientURL()
			c := open(t, o)
			before := drawAll(t, c, upTo(0))
			if err := c.StepCountersBack(t.Context()); err != nil {
				t.Fatal(err)
			}
			tt.forget(t, c)
			if !tt.dir {
				// Nothing of it is read again by the connection that goes on.
				removeNumbers(t, o.DataDir)
			}
			if !tt.same {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				c = open(t, o)
			}
			after := drawAll(t, c, upTo(3))
			if after.epoch <= before.epoch || after.generation <= before.generation || after.timeline <= before.timeline {
				t.Errorf("got epoch %d, generation %d, timeline %d after %d, %d, %d", after.epoch, after.generation, after.timeline,
					before.epoch, before.generation, before.timeline)
			}
		})
	}
}

// TestNumbersOfOthers: what another process drew and published is known to
// whoever followed it, though no stream has it any more.
func TestNumbersOfOthers(t *testing.T) {
	srv := natsServer(t, nil)
	connect := func() *cdc.Conn {
		o := options(t, t.TempDir())
		o.URL = srv.ClientURL()
		return open(t, o)
	}
	one, two := connect(), connect()
	r := newRecorder()
	follow(t, two, r)
	before := drawAll(t, one, upTo(0))
	eventually(t, func() (reason string) {
		r.do(func() {
			if st := r.states["a"]; st == nil || st.Epoch != before.epoch {
				reason = fmt.Sprintf("the follower has state %+v", st)
			}
		})
		return reason
	})
	eventually(t, func() string {
		for _, a := range itemsOf[*event.Announcement](r) {
			if a.Epoch == before.epoch {
				return ""
			}
		}
		return "the follower has not come to the last announcement"
	})
	if err := one.StepCountersBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	emptyStreams(t, one)
	after := drawAll(t, two, upTo(3))
	if after.epoch <= before.epoch || after.generation <= before.generation || after.timeline <= before.timeline {
		t.Errorf("got %+v after %+v", after, before)
	}
}

type drawn struct {
	epoch      event.Epoch
	generation event.Generation
	timeline   uint32
}

// drawAll draws several numbers of each kind and publishes the last, as a tailer
// does.
func drawAll(t *testing.T, c *cdc.Conn, executed gtid.Set) drawn {
	t.Helper()
	var d drawn
	for range 3 {
		var err error
		if d.epoch, err = c.NextEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := facts(executed)
		f.Epoch = d.epoch
		w := write(t, c, cdc.WriterOptions{}, f)
		if executed.IsEmpty() {
			w.numbered(t, 1, 3)
			w.stored(t, 3)
			executed = upTo(3)
		}
		w.end(t)
		d.generation = w.Generation()
	}
	states := cdc.NewStatePublisher(c)
	run := start(t, states.Run)
	if err := states.Publish(t.Context(), &event.ServerState{Server: "a", UUID: uuidA, Epoch: d.epoch}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if states.Counters().Published == 0 {
			return "the state is not published"
		}
		return ""
	})
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	_, timelines, err := c.Numbering(t.Context())
	if err != nil || len(timelines) == 0 {
		t.Fatalf("timelines %v, %v", timelines, err)
	}
	d.timeline = timelines[len(timelines)-1].Number
	return d
}

func emptyStreams(t *testing.T, c *cdc.Conn) {
	t.Helper()
	for _, name := range []string{c.WritesStream(), c.StateStream()} {
		s, err := c.JetStream().Stream(t.Context(), name)
		if err == nil {
			err = s.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func removeNumbers(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.numbers"))
	if err != nil || len(files) != 1 {
		t.Fatalf("numbers are kept in %v, %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
}
