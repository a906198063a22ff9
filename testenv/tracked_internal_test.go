package testenv

import (
	"bytes"
	"errors"
	"testing"
)

// TestDecodeOK: every field of an OK packet is needed to know the GTID; a packet that
// ends before it is an error, never a commit without one.
func TestDecodeOK(t *testing.T) {
	const gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:app:23"
	change := append([]byte{0, byte(len(gtid))}, gtid...)
	state := append([]byte{3, byte(len(change))}, change...)
	whole := append([]byte{1, 0xfc, 0x39, 0x30, 0x02, 0x40, 0, 0, 0, byte(len(state))}, state...)
	want := Acknowledged{AffectedRows: 1, LastInsertID: 12345, GTID: gtid}
	if got, err := decodeOK(whole); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for n := range whole {
		if got, err := decodeOK(whole[:n]); !errors.Is(err, errNoOK) {
			t.Errorf("the first %d bytes of %d: %+v, %v", n, len(whole), got, err)
		}
	}
	if got, err := decodeOK([]byte{0, 0, 2, 0, 0, 0}); err != nil || got != (Acknowledged{}) {
		t.Errorf("nothing changed: %+v, %v", got, err)
	}
}

func FuzzDecodeOK(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 0, 0})
	f.Add([]byte{1, 0xfc, 0x39, 0x30, 0x02, 0x40, 0, 0, 0, 5, 3, 3, 0, 1, 'a'})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeOK(b)
		if err == nil && a.GTID != "" && !bytes.Contains(b, []byte(a.GTID)) {
			t.Errorf("%q is not in the packet", a.GTID)
		}
	})
}
