package event

import (
	"encoding/binary"

	"tidegate/cdc/key"
)

// Bits of a ServerState's truth values.
const (
	stateAlive uint64 = 1 << iota
	stateWritable
	stateDrained
	stateIO
	stateSQL
	stateRelaxed
	stateGrouped
	stateBits = 1<<iota - 1
)

// AppendBinary appends the wire form of s to dst and returns it. It does not
// modify s.
func (s *ServerState) AppendBinary(dst []byte) []byte {
	b := append(dst, Format, kindState)
	b = appendText(b, s.Server)
	b = appendText(b, s.AppAddr)
	b = append(b, s.UUID[:]...)
	b = binary.AppendUvarint(b, uint64(s.Epoch))
	b = binary.LittleEndian.AppendUint64(b, s.DataSet)
	b = binary.AppendUvarint(b, uint64(s.History))
	b = binary.AppendUvarint(b, uint64(s.LossSeen))
	var bits uint64
	for _, f := range [...]struct {
		on  bool
		bit uint64
	}{
		{s.Alive, stateAlive},
		{s.Writable, stateWritable},
		{s.Drained, stateDrained},
		{s.IORunning, stateIO},
		{s.SQLRunning, stateSQL},
		{s.RelaxedDurable, stateRelaxed},
		{s.Grouped, stateGrouped},
	} {
		if f.on {
			bits |= f.bit
		}
	}
	b = binary.AppendUvarint(b, bits)
	b = append(b, byte(s.Role))
	b = appendTexts(b, []string{s.Down, s.GTIDMode, s.Follow, s.BinlogFile, s.ReplicationErr, s.ServerVersion})
	b = s.Owned.AppendBinary(b)
	b = s.Executed.AppendBinary(b)
	b = s.Unproven.AppendBinary(b)
	b = s.Base.AppendBinary(b)
	b = s.Received.AppendBinary(b)
	b = s.Hinted.AppendBinary(b)
	b = s.Errant.AppendBinary(b)
	b = binary.AppendUvarint(b, uint64(len(s.Ticks)))
	for i := range s.Ticks {
		b = append(b, s.Ticks[i].Router[:]...)
		b = binary.AppendUvarint(b, s.Ticks[i].Tick)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Taints)))
	for i := range s.Taints {
		t := &s.Taints[i]
		b = appendBool(b, t.All)
		b = append(b, t.Table[:]...)
		b = appendText(b, t.Name)
		b = appendGTID(b, t.GTID)
		b = appendText(b, t.Reason)
	}
	b = appendTexts(b, s.Excluded)
	b = appendTexts(b, s.Filtered)
	b = appendDigests(b, s.FilteredTables)
	b = binary.AppendUvarint(b, s.BinlogPos)
	b = binary.LittleEndian.AppendUint64(b, s.BinlogMark)
	b = append(b, s.SourceUUID[:]...)
	b = appendZigzag(b, s.UptimeSeconds)
	b = appendZigzag(b, s.ThreadsRunning)
	b = appendZigzag(b, s.ProbedUnixMicro)
	b = appendZigzag(b, s.Process)
	b = binary.AppendUvarint(b, s.Connection)
	b = binary.AppendUvarint(b, uint64(len(s.Ends)))
	for _, e := range s.Ends {
		b = binary.AppendUvarint(b, uint64(e.Epoch))
		b = appendText(b, e.File)
	}
	return b
}

// DecodeServerState reads a state of STATE; it does not refer to b. Errors wrap
// [ErrNewerFormat] or [ErrCorrupt].
func DecodeServerState(b []byte) (*ServerState, error) {
	return DecodeServerStateAfter(b, &ServerState{})
}

// DecodeServerStateAfter is DecodeServerState for a server whose state before
// was last: GTID sets share with its sets what did not change.
func DecodeServerStateAfter(b []byte, last *ServerState) (*ServerState, error) {
	r, err := open(b, kindState)
	if err != nil {
		return nil, err
	}
	s := &ServerState{Server: r.text(), AppAddr: r.text(), UUID: r.array16(), Epoch: Epoch(r.uvarint())}
	s.DataSet = r.fixed64()
	s.History = History(r.uvarint())
	s.LossSeen = Version(r.small(1<<63 - 1))
	bits := r.small(stateBits)
	s.Alive, s.Writable, s.Drained = bits&stateAlive != 0, bits&stateWritable != 0, bits&stateDrained != 0
	s.IORunning, s.SQLRunning, s.RelaxedDurable = bits&stateIO != 0, bits&stateSQL != 0, bits&stateRelaxed != 0
	s.Grouped = bits&stateGrouped != 0
	if s.Role = Role(r.byte()); s.Role > RoleReplica {
		r.fail("unknown role")
	}
	texts := r.texts()
	if len(texts) != 6 {
		r.fail("missing texts")
		return nil, r.err
	}
	s.Down, s.GTIDMode, s.Follow = texts[0], texts[1], texts[2]
	s.BinlogFile, s.ReplicationErr, s.ServerVersion = texts[3], texts[4], texts[5]
	s.Owned, s.Executed, s.Unproven, s.Base = r.set(), r.setLike(last.Executed), r.setLike(last.Unproven), r.setLike(last.Base)
	s.Received, s.Hinted, s.Errant = r.setLike(last.Received), r.setLike(last.Hinted), r.setLike(last.Errant)
	if n := r.count(17); n > 0 {
		s.Ticks = make([]RouterTick, n)
		for i := range s.Ticks {
			s.Ticks[i] = RouterTick{Router: r.array16(), Tick: r.uvarint()}
		}
	}
	if n := r.count(20); n > 0 {
		s.Taints = make([]Taint, n)
		for i := range s.Taints {
			s.Taints[i] = Taint{All: r.bool(), Table: r.array16(), Name: r.text(), GTID: r.gtid(), Reason: r.text()}
		}
	}
	s.Excluded, s.Filtered = r.texts(), r.texts()
	s.FilteredTables = r.digests()
	s.BinlogPos = r.uvarint()
	s.BinlogMark = r.fixed64()
	s.SourceUUID = r.array16()
	s.UptimeSeconds, s.ThreadsRunning, s.ProbedUnixMicro = r.varint(), r.varint(), r.varint()
	s.Process, s.Connection = r.varint(), r.uvarint()
	s.Ends = r.runEnds()
	if err := r.close(); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *reader) runEnds() []RunEnd {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	ends := make([]RunEnd, n)
	for i := range ends {
		ends[i] = RunEnd{Epoch: Epoch(r.uvarint()), File: r.text()}
	}
	return ends
}

// Bits of a column's truth values.
const (
	columnUnsigned uint64 = 1 << iota
	columnNullable
	columnBits = 1<<iota - 1
)

// AppendBinary appends the wire form of t to dst and returns it. It does not
// modify t.
func (t *TableDefinition) AppendBinary(dst []byte) []byte {
	b := append(dst, Format, kindDefinition)
	b = appendText(b, t.Schema)
	b = appendText(b, t.Table)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Version))
	b = appendBool(b, t.FoldNames)
	b = binary.AppendUvarint(b, uint64(t.Columns))
	b = appendColumns(b, t.Primary)
	b = appendColumns(b, t.Groups)
	b = appendBool(b, t.Dropped)
	b = appendTexts(b, t.Cascades)
	return appendText(b, t.Engine)
}

func appendColumns(b []byte, list []key.Column) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		c := &list[i]
		b = appendText(b, c.Name)
		b = append(b, byte(c.Type))
		var bits uint64
		if c.Unsigned {
			bits |= columnUnsigned
		}
		if c.Nullable {
			bits |= columnNullable
		}
		b = binary.AppendUvarint(b, bits)
		for _, n := range [...]int{c.Precision, c.Scale, c.Length, c.PrefixLen, c.Ordinal} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = appendText(b, c.Collation)
		b = appendTexts(b, c.Members)
	}
	return b
}

// DecodeTableDefinition reads a definition of STATE; it does not refer to b.
// Errors wrap [ErrNewerFormat] or [ErrCorrupt].
func DecodeTableDefinition(b []byte) (*TableDefinition, error) {
	r, err := open(b, kindDefinition)
	if err != nil {
		return nil, err
	}
	t := &TableDefinition{}
	t.Schema, t.Table = r.text(), r.text()
	t.Version = key.DefVersion(r.fixed64())
	t.FoldNames = r.bool()
	t.Columns = r.size()
	t.Primary, t.Groups = r.columns(), r.columns()
	t.Dropped = r.bool()
	t.Cascades = r.texts()
	t.Engine = r.text()
	if err := r.close(); err != nil {
		return nil, err
	}
	return t, nil
}

// size reads a number of bytes, digits or columns.
func (r *reader) size() int {
	n := r.uvarint()
	if !fits(n) {
		r.fail("number out of range")
		return 0
	}
	return int(n)
}

func (r *reader) columns() []key.Column {
	n := r.count(10)
	if n == 0 {
		return nil
	}
	list := make([]key.Column, n)
	for i := range list {
		c := &list[i]
		c.Name = r.text()
		c.Type = key.Type(r.byte())
		bits := r.small(columnBits)
		c.Unsigned, c.Nullable = bits&columnUnsigned != 0, bits&columnNullable != 0
		c.Precision, c.Scale, c.Length, c.PrefixLen, c.Ordinal = r.size(), r.size(), r.size(), r.size(), r.size()
		c.Collation = r.text()
		c.Members = r.texts()
	}
	return list
}
