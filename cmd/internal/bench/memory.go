package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryReport is what the child of the row memory writes.
type memoryReport struct {
	Records  int
	Empty    int64 // resident bytes with an empty index
	Resident int64 // with the records, after a collection
	Peak     int64 // largest meanwhile, garbage of the ingest included
}

// memoryRow fills an index in a process of its own and takes what the kernel
// says is resident.
func (b *bench) memoryRow(ctx context.Context) ([]Figure, error) {
	var m memoryReport
	if err := b.runChild(ctx, &m, "memory", strconv.Itoa(b.effort.records)); err != nil {
		return nil, err
	}
	perMillion := func(bytes int64) float64 { return float64(bytes-m.Empty) / float64(m.Records) } // bytes a record = MB a million
	return []Figure{
		figure("memory.resident", perMillion(m.Resident), "MB/1M records", lower).must(64).aim(32),
		figure("memory.peak", perMillion(m.Peak), "MB/1M records", lower),
	}, nil
}

// measureMemory is the child.
func measureMemory(records int) (memoryReport, error) {
	m := memoryReport{Records: records}
	w, err := newWorld(2)
	if err != nil {
		return m, err
	}
	// The wire form's buffers and decoder are warm before the empty index is
	// measured: they are not the records'.
	if err := w.fill(1000); err != nil {
		return m, err
	}
	if m.Empty, err = resident(); err != nil {
		return m, err
	}
	// The kernel counts the largest size anew from here on.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return m, fmt.Errorf("reset the peak of resident memory: %w", err)
	}
	if err := w.fill(records + 1000); err != nil {
		return m, err
	}
	if m.Peak, err = statusBytes("VmHWM"); err != nil {
		return m, err
	}
	if m.Resident, err = resident(); err != nil {
		return m, err
	}
	if n := w.ix.Counters().Records; n < records {
		return m, fmt.Errorf("the index holds %d records, want at least %d", n, records)
	}
	return m, nil
}

// resident is what the kernel counts after garbage is gone.
func resident() (int64, error) {
	debug.FreeOSMemory()
	debug.FreeOSMemory()
	return statusBytes("VmRSS")
}

// statusBytes reads a size of this process.
func statusBytes(name string) (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == name+":" {
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", name)
}

// writeReport gives a child's result to the parent.
func writeReport(file string, report any) error {
	b, err := json.Marshal(report)
	if err != nil {
		return err
	}
	// Renamed into place: the parent never sees half of it.
	if err := os.WriteFile(file+".part", b, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".part", file)
}
