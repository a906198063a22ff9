package binlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// checkStart compares a position with what the server has. The server itself
// checks only its own UUID, and only when the dump has begun.
func checkStart(server string, f Facts, from gtid.Set) error {
	if extra := from.Subtract(f.Executed); !extra.IsEmpty() {
		if extra = extra.Subtract(f.owned); !extra.IsEmpty() {
			return &DivergedError{Server: server, Extra: extra}
		}
	}
	if missing := f.Purged.Subtract(from); !missing.IsEmpty() {
		return &PurgedError{Server: server, Missing: missing, Purged: f.Purged}
	}
	return nil
}

// checkFit refuses a server that can not be tailed as it is set up.
func checkFit(server string, f *Facts) error {
	switch {
	case f.gtidMode == "": // scripted sessions
		return nil
	case !f.logBin:
		return &RefusedError{Server: server, Reason: "it has no binlog", Mend: "log_bin in its configuration, and a restart (or follow: executed)"}
	case f.gtidMode != "ON":
		return &RefusedError{
			Server: server, Reason: "gtid_mode is " + f.gtidMode,
			Mend: "SET PERSIST enforce_gtid_consistency = ON; then SET PERSIST gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON, one after the other",
		}
	case f.format != "ROW":
		return &RefusedError{Server: server, Reason: "binlog_format is " + f.format, Mend: "SET PERSIST binlog_format = ROW"}
	}
	return nil
}

func (t *Tailer) dumpOptions() dumpOptions {
	return dumpOptions{
		server: &t.o.Server, uuid: t.uuid, serverID: serverID(t.uuid),
		heartbeat: t.o.Heartbeat, readTimeout: t.o.ReadTimeout, maxEvent: t.o.MaxEventBytes, busyPause: t.o.BusyPause,
	}
}

// serverID makes the number as which a reader registers; like a replica's it
// must be its own.
func serverID(u gtid.UUID) uint32 {
	id := uint32(u[0])<<24 | uint32(u[1])<<16 | uint32(u[2])<<8 | uint32(u[3])
	return id | 1<<31 // far from the small numbers that servers have
}

// connect opens a session, over what was purged if the owner says so.
func (t *Tailer) connect(ctx context.Context, h Handler) (*Session, error) {
	dial := t.o.Dial
	if dial == nil {
		dial = func(ctx context.Context, from gtid.Set) (*Session, error) {
			return dumpFrom(ctx, t.dumpOptions(), from)
		}
	}
	s, err := dial(ctx, t.executed.Set())
	if err == nil {
		if !t.proven {
			if err := checkFit(t.o.Server.Name, &s.Facts); err != nil {
				_ = s.Close()
				return nil, err
			}
		}
		if err := t.sameRun(ctx); err != nil {
			_ = s.Close()
			return nil, err
		}
		return s, nil
	}
	t.counts.Failures++
	t.publish(false)
	var purged *PurgedError
	var diverged *DivergedError
	var refused *RefusedError
	switch {
	case errors.As(err, &purged):
		return nil, t.purged(ctx, h, purged)
	case errors.As(err, &diverged):
		// A transaction that the tail has shown may still be committing, and be
		// in neither set for a moment.
		if t.trouble.again(gtid.GTID{}) >= attemptsToStop {
			return nil, diverged
		}
		return nil, retry(err)
	case errors.As(err, &refused):
		if !t.proven {
			return nil, refused
		}
		return nil, retry(err) // it could be followed before: somebody is at work
	}
	if words, lacks := lacksPrivilege(err); lacks && !t.proven {
		return nil, t.noPrivilege(words)
	}
	return nil, retry(err)
}

// sameRun tells a connection to another run from a new one to the run that is
// read. The connection stands when the owner is asked: a run that goes on after
// that is the one it leads to.
func (t *Tailer) sameRun(ctx context.Context) error {
	if t.o.SameRun == nil {
		return nil
	}
	same, err := t.o.SameRun(ctx)
	switch {
	case err != nil:
		return retry(err)
	case !same:
		return &OtherRunError{Server: t.o.Server.Name}
	}
	return nil
}

func (t *Tailer) noPrivilege(words string) error {
	return &RefusedError{
		Server: t.o.Server.Name, Reason: words,
		Mend: fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO %s", quoteAccount(t.o.Server.User)),
	}
}

// purged asks the owner what to do, and writes the hole.
func (t *Tailer) purged(ctx context.Context, h Handler, e *PurgedError) error {
	if t.o.OnPurged == nil || !t.o.OnPurged(ctx, e) {
		return e
	}
	t.o.Log.Warn("going on behind purged binlogs", "server", t.o.Server.Name, "missing", e.Missing)
	t.counts.Holes++
	if err := t.hole(ctx, h, &event.Hole{GTIDs: e.Missing, Reason: "purged on " + e.Server}); err != nil {
		return err
	}
	return retry(errors.New("going on behind purged binlogs"))
}

// isAnonymousRefusal tells the one refusal that no set explains.
func isAnonymousRefusal(words string) bool {
	return strings.Contains(strings.ToLower(words), "anonymous")
}

// randomUUID makes a UUID for registering at a server.
func randomUUID() (u gtid.UUID) {
	for i := range u {
		u[i] = byte(rand.Uint32())
	}
	return u
}
