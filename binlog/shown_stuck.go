package binlog

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// stuckTail remembers why a replica's own binlog can not be read on, for people:
// what stays unproven for it is a no, and nothing else would tell its cause. Many
// may call its methods at once.
type stuckTail struct{ why atomic.Pointer[string] }

type tailFunc = func(ctx context.Context, from gtid.Set, h Handler) error

// watch makes tails whose end is noted when it is one that only others can mend.
func (s *stuckTail) watch(tail tailFunc) tailFunc {
	if tail == nil {
		return nil
	}
	return func(ctx context.Context, from gtid.Set, h Handler) error {
		err := tail(ctx, from, stuckHandler{h, s})
		if why := whyStuck(err); why != "" && ctx.Err() == nil {
			s.why.Store(&why)
		}
		return err
	}
}

// whyStuck is empty for errors after which the next tail may get on by itself.
func whyStuck(err error) string {
	var anonymous *AnonymousError
	var corrupt *CorruptError
	var refused *RefusedError
	switch {
	case errors.As(err, &anonymous):
		where, _, _ := strings.Cut(anonymous.Reason, ";")
		return "its binlog has a transaction without a GTID in front of what is not compared yet (" + where + "): FLUSH LOCAL BINARY LOGS and " +
			"PURGE BINARY LOGS there up to the file behind it, after which what was in them is taken as shown, or rebuild the server"
	case errors.As(err, &corrupt), errors.As(err, &refused):
		return "its binlog can not be read on: " + err.Error()
	}
	return ""
}

// text is what a state says while something of it is not proven.
func (s *stuckTail) text(unproven gtid.Set) string {
	if why := s.why.Load(); why != nil && !unproven.IsEmpty() {
		return *why
	}
	return ""
}

// stuckHandler forgets the cause when a transaction comes.
type stuckHandler struct {
	Handler
	s *stuckTail
}

func (h stuckHandler) Transaction(ctx context.Context, t *event.Transaction, at Position) error {
	h.s.why.Store(nil)
	return h.Handler.Transaction(ctx, t, at)
}
