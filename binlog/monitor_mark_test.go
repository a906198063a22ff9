package binlog

import (
	"context"
	"testing"
)

// swapped is a scripted server behind whose address another one appears between
// the look at its settings and the connection that reads a file's mark: what
// holds the address (a proxy, a service name) leads new connections to it, and
// keeps the old ones.
type swapped struct {
	*script
	swap func(file string) // called with what mark reads, nothing held
}

func (s *swapped) mark(ctx context.Context, file string, of runID) (fileMark, error) {
	s.swap(file)
	return s.script.mark(ctx, file, of)
}

// TestMonitorMarkOfAnotherRun: a mark that another server gave is none of the
// file that the monitor has followed.
func TestMonitorMarkOfAnotherRun(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.marks["binlog.000001"], r.s.marks["binlog.000002"] = 10, 20
		done := false
		backend := &swapped{r.s, func(file string) {
			if file != "binlog.000002" || done {
				return
			}
			done = true
			r.s.do(func() {
				r.s.restartLocked()
				r.s.marks["binlog.000001"], r.s.marks["binlog.000002"] = 1010, 1020
			})
		}}
		r.startOn(backend, MonitorOptions{})
		defer r.end()
		before := r.latest()
		r.s.do(func() {
			r.s.run.Files = append(r.s.run.Files, binlogFile{"binlog.000002", 200})
			r.s.ends["binlog.000001"] = "Rotate"
		})
		r.settle()
		r.settle()
		r.settle()
		if !done {
			t.Fatal("the mark of the second file was never read")
		}
		st := r.latest()
		r.want("alive", st.Alive, true)
		r.want("another epoch", st.Epoch > before.Epoch, true)
		r.want("another data set", st.DataSet != before.DataSet, true)
	})
}
