package event

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// Format is the version of the wire form that this package writes.
const Format uint8 = 4

// Version orders the transactions of a history: timeline<<43 | ordinal. "Newer"
// always means a larger Version, never a larger GTID number (rules §1). Zero is
// older than everything.
type Version uint64

// ordinalBits is the width of the ordinal inside a Version.
const ordinalBits = 43

// MakeVersion puts a version together. Timelines have 20 bits, ordinals 43.
func MakeVersion(timeline uint32, ordinal uint64) Version {
	return Version(uint64(timeline)<<ordinalBits | ordinal&(1<<ordinalBits-1))
}

// Timeline is the writer's numbering that v belongs to.
func (v Version) Timeline() uint32 { return uint32(v >> ordinalBits) }

// Ordinal is v's place in its timeline.
func (v Version) Ordinal() uint64 { return uint64(v) & (1<<ordinalBits - 1) }

// Epoch numbers a run of one mysqld with one data set. Epochs come from one
// counter in NATS KV; a lower one is older whatever server it belongs to.
type Epoch uint64

// Generation numbers the writers of a WRITES stream; the messages of a lower
// generation that come after a higher one are ignored (rules §11.3).
type Generation uint64

// History numbers the lines of commits that a stream has carried: it grows when
// the stream is replaced or GTIDs are reused, not at a failover (rules §1).
type History uint64

// Identity is what makes a transaction itself: its GTID and the moment of its
// original commit. A GTID alone may be given twice (rules §11.2).
type Identity struct {
	GTID           gtid.GTID
	OriginalCommit int64 // microseconds since 1970, by the clock of the server that first committed it
}

// Flags tell what kind of transaction an item is.
type Flags uint16

const (
	// Empty: the binlog carries no change for this GTID.
	Empty Flags = 1 << iota
	// Statement: some change was logged as a statement, so that the tables of
	// the transaction can't be compared between servers (rules §2.2).
	Statement
	// DDL: a statement that changes definitions.
	DDL
	// Capped: more keys than key_cap; all-rows of every table touched instead.
	Capped
	// XAPrepare: the scopes take effect at the XACommit of the same XID.
	XAPrepare
	// XACommit: makes the scopes prepared under XID visible. A one-phase commit
	// is an ordinary transaction and carries no XID.
	XACommit
	// XARollback: drops the scopes prepared under XID.
	XARollback
	// NotUnderstood: something in it could not be read or understood and was
	// written as a wide scope; counted, never skipped.
	NotUnderstood
	// CascadesLogged: the transaction has rows events, and each says that the
	// server logged what foreign keys changed besides, so that Tables names every
	// table of which it changed a row (rules §2.2). Unset, as by an older writer:
	// nothing is known of tables that it does not name.
	CascadesLogged
	// Unchanged: statements alone, which are known to have changed no row but of
	// temporary tables, so that a replica in row format has an empty transaction
	// of it (rules §2.2). Unset, as by an older writer: nothing is known.
	Unchanged

	allFlags Flags = 1<<iota - 1
)

// Transaction is one committed transaction of the primary, in compact form:
// identity and the digests of all that it wrote (rules §3).
type Transaction struct {
	GTID            gtid.GTID
	OriginalCommit  int64 // microseconds since 1970
	ImmediateCommit int64 // microseconds since 1970, on the server whose binlog was read
	SizeBytes       uint64
	Flags           Flags
	XID             string // XA only: MySQL's printed form X'..',X'..',n
	// Tables holds the any-row scope of each table for which the transaction
	// has a rows event (not a mere table map). They are records too.
	Tables []key.Digest
	// Scopes holds everything else that it wrote: rows, group values, wide
	// scopes. No duplicates, no order.
	Scopes []key.Digest
	// Defs names the definitions with which rows of this transaction were
	// folded, and those that hold after a DDL (version 0: none is known yet).
	Defs []DefRef
}

// Identity returns the transaction's identity.
func (t *Transaction) Identity() Identity { return Identity{t.GTID, t.OriginalCommit} }

// DefRef names the version of the definition of a table; the table is named by
// its any-row scope.
type DefRef struct {
	Table   key.Digest
	Version key.DefVersion
}

// Header precedes the items of each message of WRITES and forms the chain of
// rules §5.4.
type Header struct {
	Incarnation [16]byte   // random, made with the stream
	Count       uint64     // running number of the message in the stream, from 1
	Prev        [16]byte   // digest of the whole message before; zero for the first
	Generation  Generation // of the writer
	Timeline    uint32
	Fold        uint16  // key.FoldVersion of the writer
	SecretPrint [8]byte // fingerprint of the digest secret
}

// Message is one message of WRITES. Items are in commit order; their ordinals
// are First, First+1, ... (each item takes one, each chunk of a transaction the
// same one as its transaction).
type Message struct {
	Header
	First uint64
	Items []Item
	// Digest is [DigestOf] the message as it was read: the Prev of the next
	// one. DecodeMessage sets it; it is not part of the wire form.
	Digest [16]byte
	// Format is that of the bytes which DecodeMessage read, and of what its parts
	// carry.
	Format uint8
}

// Item is one of: *Transaction, *Chunk, *Hole, *Announcement, *Checkpoint,
// *Definitions, *Part.
type Item interface{ item() }

func (*Transaction) item()  {}
func (*Chunk) item()        {}
func (*Hole) item()         {}
func (*Announcement) item() {}
func (*Checkpoint) item()   {}
func (*Definitions) item()  {}
func (*Part) item()         {}

// Chunk carries a part of the scopes of a transaction that is too large for one
// message. Chunks of one transaction follow each other without anything between
// (no checkpoint, no other transaction). The last one closes it: Last is set and
// Transaction holds everything but the scopes of the earlier chunks. A reader
// that has not seen every chunk (by count and digest) writes everything
// instead and treats the transaction as a hole.
type Chunk struct {
	GTID   gtid.GTID
	Number uint32 // from 0
	Scopes []key.Digest
	Last   *Transaction
	Total  uint32   // Last only: number of chunks, this one included
	Digest [16]byte // Last only: digest of the scopes of all chunks in order
}

// HoleHeader is what a header still told of a transaction in a hole.
type HoleHeader struct {
	Identity
	Empty bool // its length tells that it changed nothing
}

// Hole names GTIDs whose changes the stream can not give: purged, incident,
// unreadable. It is a wide write of everything, and its GTIDs join the horizon.
type Hole struct {
	GTIDs   gtid.Set
	Headers []HoleHeader // for those of GTIDs of which a header was read
	// Anonymous tells of a transaction without GTID: the watermark stops until
	// the next announcement (rules §6.2).
	Anonymous bool
	Reason    string
}

// TimelineStart names a timeline and the first ordinal that is its own.
type TimelineStart struct {
	Number uint32
	First  uint64
}

// GroupColumn is a column under `keys:` whose values are recorded.
type GroupColumn struct {
	Schema, Table, Column string
	// Before is what had been delivered or lay below the horizon when the
	// column was first announced: its group values are not recorded.
	Before gtid.Set
}

// Announcement names the run of the primary from which the writer writes from
// here on (rules §6.2, §10).
type Announcement struct {
	Server     string // configured name
	ServerUUID gtid.UUID
	Epoch      Epoch
	History    History
	Executed   gtid.Set // of the primary, read after its old channel was drained
	// Had is Executed and what the primary was committing besides: its binlog had
	// no other transaction yet, so that each one outside of it lies behind all of
	// them there. Empty: not known.
	Had gtid.Set
	// Lost is every GTID that is lost and not seen again since; LostIDs are the
	// identities known of them. Both are complete, not increments.
	Lost    gtid.Set
	LostIDs []Identity
	// NewlyLost is the part of Lost (or of identities reused since) that this
	// announcement adds; in the copy that a checkpoint carries, [Checkpoint.EverLost].
	NewlyLost gtid.Set
	Timelines []TimelineStart
	Groups    []GroupColumn
	FoldNames bool // lower_case_table_names of the primary is not 0
}

// OpenXA is a prepared XA transaction whose outcome is not yet known.
type OpenXA struct {
	XID    string
	GTID   gtid.GTID // of the XA PREPARE
	Tables []key.Digest
	Scopes []key.Digest
}

// Checkpoint is enough to start an index: everything before it may be forgotten
// and is then the horizon (rules §5.3).
type Checkpoint struct {
	History    History
	Delivered  gtid.Set // with holes: everything that is not to be read from earlier messages
	Holes      gtid.Set // the part of Delivered that are holes
	Lost       gtid.Set
	LostIDs    []Identity
	LossAt     Version      // version of the newest announcement
	KnownEmpty gtid.Set     // transactions known to be empty on the primary
	Announced  Announcement // the one in force; Epoch 0: none yet
	Timelines  []TimelineStart
	Open       []OpenXA
	Defs       []DefRef
	Groups     []GroupColumn
}

// EverLost is every GTID under which a transaction was lost, given again or not:
// none of them is in a base (rules §1). It travels as NewlyLost of the
// announcement, also where none is in force.
func (c *Checkpoint) EverLost() gtid.Set {
	ever := c.Announced.NewlyLost.Union(c.Lost)
	var named gtid.Builder
	for i := range c.LostIDs {
		named.Add(c.LostIDs[i].GTID)
	}
	return ever.Union(named.Set())
}

// Definitions names definitions that became usable without a transaction of
// their own (a look-up that the tail has passed, rules §4.4).
type Definitions struct{ Defs []DefRef }

// Part carries a piece of an announcement, a hole, a checkpoint or a list of
// definitions that is too large for one message. A message with a Part has
// nothing else, and the Parts of one item follow each other without anything
// between. A follower puts them together and hands on one message, with the
// header and the digest of the last part's; handlers never see a Part. All
// parts have the ordinal of their item.
type Part struct {
	Number uint32   // from 0
	Total  uint32   // how many parts there are
	Digest [16]byte // DigestOf the whole: the same in each part
	Bytes  []byte   // of [EncodeItems]
}
