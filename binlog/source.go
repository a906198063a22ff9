package binlog

import (
	"context"
	"io"

	"tidegate/binlog/gtid"
)

// Source delivers the events of one binlog in order, as the bytes that the
// server sent.
//
// Next is called by one goroutine at a time. Close may be called at any time,
// also twice, also while Next blocks; Next then returns an error.
type Source interface {
	// Next blocks until the next event is there. The event is valid until the
	// next call. When ctx ends before any part of an event has arrived, Next
	// returns ctx.Err() and may be called again: nothing is lost. Once a part
	// has arrived, Next goes on, bounded by the source's own read timeout.
	//
	// After any other error the source is broken; io.EOF says that the binlog
	// ends here (sources that do not wait for more).
	Next(ctx context.Context) (Raw, error)
	Close() error
}

// Raw is one event as it stands in the binlog.
type Raw struct {
	// Data is the event with its header, checksum included, or the first part
	// of it when Rest is not nil.
	Data []byte
	// Rest gives the remainder of an event that is larger than the source keeps
	// in memory. What is not read of it is skipped by the next call of Next.
	Rest io.Reader
}

// Facts is what a session knows of its server besides the events.
type Facts struct {
	ServerUUID gtid.UUID
	Version    string // as the server prints it
	// FoldNames: lower_case_table_names is not 0.
	FoldNames bool
	// Collations names collations by their number (information_schema.collations).
	Collations map[uint16]string
	Executed   gtid.Set // when the session began
	Purged     gtid.Set // when the session began

	owned    gtid.Set // read before Executed
	gtidMode string
	logBin   bool
	format   string
}

// Session is one connection that streams a binlog from where it was asked to.
type Session struct {
	Source
	Facts Facts
}

// Position is a place in a server's binlog: behind the event that was delivered
// last. It is for people and for finding the file again; resuming uses GTIDs.
type Position struct {
	File string
	Pos  uint64
}
