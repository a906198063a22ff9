package cdc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidegate/cdc/event"
)

// How a [Writer] ends. Everything else that goes wrong with NATS is retried
// inside.
var (
	// ErrFenced: a writer with a higher generation writes, or holds the leader
	// key. Stop; open again to stand by.
	ErrFenced = errors.New("another writer has taken over")
	// ErrSteppedBack: the stream's tail is not what this writer left there (an
	// ack was no fsync, the stream was purged or replaced, a late message of an
	// older writer slipped in). Open again and restart the dump from the tail.
	ErrSteppedBack = errors.New("the tail of the stream is not what was written")
	// ErrReused: a transaction came under a GTID that the stream has with
	// another identity, or whose identity it can no longer tell (rules §11.2).
	// Open again and tell Begin the identity that came, in PrimaryFacts.Seen:
	// errors.As finds it as a [*ReusedError].
	ErrReused = errors.New("GTID already delivered as another transaction")
	// ErrClosed: the writer was closed.
	ErrClosed = errors.New("writer is closed")
)

// How a [Follower] ends; everything else is retried inside.
var (
	// ErrSecret: the stream's digests were made with another secret than the
	// one of this connection (rules §5.5). Open the connection again.
	ErrSecret = errors.New("the stream's digests are made with another secret")
)

// ReusedError says which transaction ended a writer with [ErrReused].
type ReusedError struct {
	Came   event.Identity // what the binlog showed
	Stream event.Identity // what the stream has; not set unless Known
	Known  bool           // the stream's identity is still known
}

func (e *ReusedError) Error() string {
	if !e.Known {
		return fmt.Sprintf("transaction %v, committed at %d: the stream has its GTID and can no longer tell its identity", e.Came.GTID, e.Came.OriginalCommit)
	}
	return fmt.Sprintf("transaction %v was committed at %d, the stream's at %d", e.Came.GTID, e.Came.OriginalCommit, e.Stream.OriginalCommit)
}

func (e *ReusedError) Unwrap() error { return ErrReused }

// ErrOtherCluster: the data directory holds the streams of another cluster.
var ErrOtherCluster = errors.New("data directory belongs to another cluster")

// ErrStoreInUse: another process has the embedded store open.
var ErrStoreInUse = errors.New("embedded NATS store is in use by another process")

// Outcomes of a publish that is not known to have happened.
var (
	errWrongLast    = errors.New("stream refuses: not after its last message")
	errAckTimeout   = errors.New("no ack in time")
	errDisconnected = errors.New("connection to NATS lost")
	errNoStream     = errors.New("no stream answers")
)

// isConflict tells whether a compare-and-set lost.
func isConflict(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// isGone tells whether a stream or bucket does not exist (any more).
func isGone(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound)
}

// isTransport tells whether err says that NATS can't be reached right now or
// could not answer in time.
func isTransport(err error) bool {
	for _, e := range []error{
		nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrNoResponders, nats.ErrTimeout, nats.ErrReconnectBufExceeded,
		nats.ErrNoServers, jetstream.ErrNoStreamResponse, errDisconnected, errAckTimeout, errNoStream,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(notReady, api.ErrorCode)
}

// notReady are JetStream's codes for a cluster that is still gathering, or
// electing: incomplete results, too few peers online for a placement,
// temporarily unavailable, not the leader.
var notReady = []jetstream.ErrorCode{10004, 10005, 10008, 10009}

// corrupt wraps what makes a message of WRITES unusable.
func corrupt(seq uint64, err error) error {
	return fmt.Errorf("read message %d of WRITES: %w", seq, err)
}
