package binlog

// queryEvent is a decoded QUERY event (or the one that executes a LOAD DATA).
// Slices are parts of the event.
type queryEvent struct {
	schema []byte // default schema
	text   []byte
	// sqlMode and charset (a collation number) as the client had them.
	sqlMode uint64
	charset uint16
	// databases are those that the statement may have changed; known is false
	// when the list is missing or overflowed.
	databases [][]byte
	known     bool

	vars []byte // status variables, read by readStatus
}

// Bits of sql_mode that change how text is read.
const (
	modeANSIQuotes         = 1 << 2
	modeNoBackslashEscapes = 1 << 20
)

// Status variables of a QUERY event.
const (
	statusFlags2 = iota
	statusSQLMode
	statusCatalog
	statusAutoIncrement
	statusCharset
	statusTimeZone
	statusCatalogNZ
	statusTimeNames
	statusCharsetDatabase
	statusMapForUpdate
	statusDataWritten
	statusInvoker
	statusDatabases
	statusMicroseconds
	statusCommitTS
	statusCommitTS2
	statusExplicitDefaults
	statusDDLXid
	statusDefaultCollation
	statusRequirePrimaryKey
	statusTableEncryption
)

// databasesOverflow stands in place of the number of databases when there were
// too many to list.
const databasesOverflow = 254

// parseQuery reads a QUERY or EXECUTE_LOAD_QUERY event, without its status
// variables. q.databases is used again; nothing is copied.
func parseQuery(t eventType, body []byte, q *queryEvent) error {
	*q = queryEvent{databases: q.databases[:0]}
	r := reader{b: body}
	r.skip(4 + 4) // thread, execution time
	schemaLen := uint64(r.byte())
	r.skip(2) // error code
	statusLen := r.uint(2)
	if t == evExecuteLoad {
		r.skip(4 + 4 + 4 + 1)
	}
	q.vars = r.bytes(statusLen)
	q.schema = r.bytes(schemaLen)
	r.skip(1)
	if r.bad {
		return malformed("query event of %d bytes", len(body))
	}
	q.text = body[r.i:]
	return nil
}

// readStatus reads the status variables. Those of a newer server end the list:
// what stands behind them can not be told apart.
func (q *queryEvent) readStatus() error {
	status := reader{b: q.vars}
	for status.left() > 0 {
		if !q.status(&status) {
			break
		}
	}
	if status.bad {
		return malformed("query event: status variables")
	}
	return nil
}

// status reads one status variable; false: it is not known.
func (q *queryEvent) status(r *reader) bool {
	switch r.byte() {
	case statusFlags2, statusAutoIncrement, statusDataWritten:
		r.skip(4)
	case statusSQLMode:
		q.sqlMode = r.uint(8)
	case statusCatalog:
		r.skip(int(r.byte()) + 1)
	case statusCharset:
		q.charset = uint16(r.uint(2))
		r.skip(4)
	case statusTimeZone, statusCatalogNZ:
		r.skip(int(r.byte()))
	case statusTimeNames, statusCharsetDatabase, statusDefaultCollation:
		r.skip(2)
	case statusMapForUpdate, statusDDLXid:
		r.skip(8)
	case statusInvoker:
		r.skip(int(r.byte()))
		r.skip(int(r.byte()))
	case statusDatabases:
		q.readDatabases(r)
	case statusMicroseconds:
		r.skip(3)
	case statusExplicitDefaults, statusRequirePrimaryKey, statusTableEncryption:
		r.skip(1)
	default:
		return false
	}
	return !r.bad
}

func (q *queryEvent) readDatabases(r *reader) {
	n := r.byte()
	if n == databasesOverflow {
		return
	}
	for range n {
		end := r.i
		for end < len(r.b) && r.b[end] != 0 {
			end++
		}
		q.databases = append(q.databases, r.bytes(uint64(end-r.i)))
		r.skip(1)
	}
	q.known = !r.bad && n > 0
}

// parseXAPrepare reads an XA_PREPARE event.
func parseXAPrepare(body []byte) (xid string, onePhase bool, err error) {
	r := reader{b: body}
	onePhase = r.byte() != 0
	formatID := int32(r.uint(4))
	gtridLen, bqualLen := r.uint(4), r.uint(4)
	if gtridLen > 64 || bqualLen > 64 {
		return "", false, malformed("XA prepare event")
	}
	gtrid, bqual := r.bytes(gtridLen), r.bytes(bqualLen)
	if r.bad {
		return "", false, malformed("XA prepare event")
	}
	return printXID(gtrid, bqual, formatID), onePhase, nil
}

// parseIncident reads an INCIDENT event's own words.
func parseIncident(body []byte) string {
	r := reader{b: body}
	r.skip(2) // its kind: only "lost events" exists
	text := r.bytes(uint64(r.byte()))
	if r.bad || len(text) == 0 {
		return "incident"
	}
	return "incident: " + string(text)
}

// payloadHead reads the head of a TRANSACTION_PAYLOAD event from its first
// bytes and returns the offset at which the payload begins.
func payloadHead(b []byte) (at int, compression, size, uncompressed uint64, err error) {
	const (
		end = iota
		fieldSize
		fieldCompression
		fieldUncompressed
	)
	r := reader{b: b}
	compression = payloadPlain
	for !r.bad {
		field := r.packed()
		if field == end {
			return r.i, compression, size, uncompressed, nil
		}
		v := reader{b: r.bytes(r.packed())}
		switch field {
		case fieldSize:
			size = v.packed()
		case fieldCompression:
			compression = v.packed()
		case fieldUncompressed:
			uncompressed = v.packed()
		}
		r.bad = r.bad || v.bad
	}
	return 0, 0, 0, 0, malformed("transaction payload event")
}

// Compression of a payload.
const (
	payloadZstd  = 0
	payloadPlain = 255
)
