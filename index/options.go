package index

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tidegate/cdc/key"
)

// Defaults of [Options].
const (
	DefaultMaxRecords    = 4_000_000
	DefaultMaxRuns       = 1 << 20
	DefaultLease         = 3 * time.Second
	DefaultFlushInterval = time.Second
	DefaultFlushBytes    = 4 << 20

	// bytesPerRecord is what a record takes in memory on average, the room that
	// its table keeps free included.
	bytesPerRecord = 32
)

// Options configures an [Index].
type Options struct {
	// Router is the incarnation of this router: random, and new with every start
	// of the process. Only ticks under it count (rules §6.1).
	Router [16]byte
	// Clock reads the router's suspend-aware clock in nanoseconds. Required. It
	// may be called by the owner's calls only, never by readers.
	Clock func() int64
	// Secret is the digest secret of the stream.
	Secret key.Secret
	// Cluster is the cluster's name. A store that was written for another one is
	// refused.
	Cluster string
	// Servers are the configured servers' names. Servers that are heard of and
	// not configured join behind them.
	Servers []string

	// Lease is how long a server counts as reachable after the newest tick that
	// its state names was sent; 0: [DefaultLease]. It must be the lease with
	// which the router decides.
	Lease time.Duration

	// MaxRecords bounds the records in memory; 0: [DefaultMaxRecords], or what
	// fits into MaxBytes where that is given. At the bound the oldest are
	// forgotten into the horizon (rules §5.2).
	MaxRecords int
	// MaxBytes bounds the memory of the records, by their average size; 0: no
	// bound but MaxRecords. Of both the smaller counts.
	MaxBytes int64
	// MaxRuns bounds the list of which transaction has which version, one entry
	// of 32 bytes for a stretch of consecutive numbers; 0: [DefaultMaxRuns].
	MaxRuns int

	// Store keeps the index across restarts; nil: every start is cold. The index
	// does not close it.
	Store Store
	// FlushInterval and FlushBytes are how old, and how large, what is not yet in
	// the store may become before it is written; 0: the defaults.
	FlushInterval time.Duration
	FlushBytes    int

	// Log receives changes of state; nil: nothing is logged.
	Log *slog.Logger
}

func (o *Options) setDefaults() {
	if o.MaxRecords == 0 {
		o.MaxRecords = DefaultMaxRecords
		if o.MaxBytes > 0 {
			o.MaxRecords = int(min(o.MaxBytes/bytesPerRecord, 1<<31-1))
		}
	} else if o.MaxBytes > 0 {
		o.MaxRecords = min(o.MaxRecords, int(min(o.MaxBytes/bytesPerRecord, 1<<31-1)))
	}
	if o.MaxRuns == 0 {
		o.MaxRuns = DefaultMaxRuns
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = DefaultFlushInterval
	}
	if o.FlushBytes == 0 {
		o.FlushBytes = DefaultFlushBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// validate reports everything that is wrong, at once.
func (o *Options) validate() error {
	var errs []error
	if o.Clock == nil {
		errs = append(errs, errors.New("no clock"))
	}
	if o.MaxRecords < 1 {
		errs = append(errs, fmt.Errorf("max records is %d (from max bytes %d): one at least is needed", o.MaxRecords, o.MaxBytes))
	}
	if o.MaxRuns < 2 {
		errs = append(errs, fmt.Errorf("max runs is %d: two at least are needed", o.MaxRuns))
	}
	if o.Lease < 0 {
		errs = append(errs, fmt.Errorf("lease is %v", o.Lease))
	}
	if o.FlushInterval < 0 || o.FlushBytes < 0 {
		errs = append(errs, fmt.Errorf("flush interval is %v, flush bytes is %d", o.FlushInterval, o.FlushBytes))
	}
	seen := map[string]bool{}
	for _, s := range o.Servers {
		if s == "" || seen[s] {
			errs = append(errs, fmt.Errorf("server name %q is empty or given twice", s))
		}
		seen[s] = true
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("index options: %w", err)
	}
	return nil
}
