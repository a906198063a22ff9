package binlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// A binlog's name and size do not tell it from another one of that name: a
// server that was rebuilt under its UUID counts its files from the start again.
// The beginning of a file does: its FORMAT_DESCRIPTION carries the second in
// which the file was made, by the server's own clock, and its PREVIOUS_GTIDS
// what the server had then. Two such readings are compared for equality alone,
// so that no clock is trusted. What they can not tell apart was made by one
// server_uuid within one second, at the same GTIDs.

// fileMark tells a binlog file from any other of its name. 0: not known.
type fileMark uint64

// created is when the server made the file, by its own clock.
func (m fileMark) created() time.Time { return time.Unix(int64(m>>32), 0).UTC() }

// markOf makes the mark from a file's first two events, its FORMAT_DESCRIPTION and
// its PREVIOUS_GTIDS. What changes while a file lives (the flag that it is in use,
// the checksums) is no part of it.
func markOf(description, previous []byte) (fileMark, error) {
	h, err := parseHeader(description)
	if err != nil {
		return 0, err
	}
	f, err := parseFormat(description[headerBytes:])
	if err != nil {
		return 0, err
	}
	end := len(previous)
	if f.checksum == checksumCRC32 {
		end -= checksumBytes
	}
	sum := crc32.ChecksumIEEE(append(binary.LittleEndian.AppendUint32(nil, binary.LittleEndian.Uint32(description[5:])), f.version...))
	if end < headerBytes {
		return 0, malformed("PREVIOUS_GTIDS of %d bytes", len(previous))
	}
	sum = crc32.Update(sum, crc32.IEEETable, previous[headerBytes:end])
	return fileMark(h.seconds)<<32 | fileMark(sum), nil
}

// nonBlock ends a dump at the end of the binlog.
const nonBlock = 1

// mark reads the beginning of a file of a run: one short dump, once for each file.
func (b *sqlBackend) mark(ctx context.Context, file string, of runID) (fileMark, error) {
	m, err := b.readMark(ctx, file, of)
	if words, ok := lacksPrivilege(err); ok {
		return 0, &RefusedError{Server: b.cfg.Name, Reason: words, Mend: grantFor(b.cfg.User)}
	}
	if err != nil {
		return 0, fmt.Errorf("read the beginning of binlog %s of %s: %w", file, b.cfg, err)
	}
	return m, nil
}

func (b *sqlBackend) readMark(ctx context.Context, file string, of runID) (m fileMark, err error) {
	uuid := randomUUID() // another one than a tail's, which the server would end
	o := dumpOptions{
		server: b.cfg, uuid: uuid, serverID: serverID(uuid), heartbeat: DefaultHeartbeat,
		readTimeout: b.cfg.queryTimeout(), maxEvent: DefaultMaxEventBytes,
	}
	c, facts, err := connectDump(ctx, o)
	if err != nil {
		return 0, err
	}
	process, err := c.process()
	if err != nil {
		c.close()
		return 0, err
	}
	if (runID{facts.ServerUUID, process}) != of {
		c.close()
		return 0, errOtherRun
	}
	p := make([]byte, packetHeader, packetHeader+1+4+2+4+len(file))
	p = append(p, mysql.COM_BINLOG_DUMP)
	p = binary.LittleEndian.AppendUint32(p, 4) // behind the magic number
	p = binary.LittleEndian.AppendUint16(p, nonBlock)
	p = binary.LittleEndian.AppendUint32(p, o.serverID)
	p = append(p, file...)
	s, err := c.dump(o, p, facts)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Source.Close()) }()
	var description []byte
	for {
		raw, err := s.Source.Next(ctx)
		if errors.Is(err, io.EOF) {
			return 0, malformed("the file ends before its FORMAT_DESCRIPTION and PREVIOUS_GTIDS")
		}
		if err != nil {
			return 0, err
		}
		h, err := parseHeader(raw.Data)
		if err != nil {
			return 0, err
		}
		switch h.kind {
		case evFormat: // ahead of it comes the file's name, made up by the dump thread
			description = bytes.Clone(raw.Data)
		case evPreviousGTIDs:
			return markOf(description, raw.Data)
		default:
			if description != nil {
				return 0, malformed("event of type %d where PREVIOUS_GTIDS is due", h.kind)
			}
		}
	}
}

// marked is what the monitor can prove of where the binlog stood: a position,
// and the mark of its file.
type marked struct {
	at   Position
	mark fileMark
}

// remarkLocked returns the newest position that carries a mark. A position in a
// file that has no mark yet is held back while an older one has: that stays true.
func (m *Monitor) remarkLocked() marked {
	if m.marked.at.File == m.position.File || m.marked.mark == 0 {
		m.marked.at = m.position
	}
	return m.marked
}

// markFile reads the mark of the file that the position is in, once.
func (s *session) markFile(ctx context.Context) {
	m := s.m
	m.mu.Lock()
	file := m.position.File
	have := file == "" || file == m.marked.at.File && m.marked.mark != 0
	m.mu.Unlock()
	if have || m.o.Server.Follow != FollowBinlog {
		return
	}
	ask, cancel := context.WithTimeout(ctx, m.o.Server.queryTimeout())
	defer cancel()
	mark, err := m.backend.mark(ask, file, s.run.id())
	if errors.Is(err, errOtherRun) {
		s.breakOff(errOtherRun)
		return
	}
	if err != nil {
		if ctx.Err() == nil {
			m.counters.factsErrors.Add(1) // asked again at the next look
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == s && m.position.File == file {
		m.marked = marked{m.position, mark}
		s.dirty = true
	}
}

// lastMark reads, for a judgement, what the file that was seen last is marked
// with now; 0: nothing to compare.
func (m *Monitor) lastMark(ctx context.Context, now *runFacts) (fileMark, error) {
	st := m.was.state
	if st == nil || st.BinlogMark == 0 || st.UUID != now.UUID || m.o.Server.Follow != FollowBinlog || fileIndex(now.Files, st.BinlogFile) < 0 {
		return 0, nil
	}
	return m.backend.mark(ctx, st.BinlogFile, now.id())
}
