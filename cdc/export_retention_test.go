package cdc

import (
	"time"

	"tidegate/cdc/event"
)

// BackdateCheckpoint makes the newest checkpoint older by age. It must be called
// between Begin and Run.
func (w *Writer) BackdateCheckpoint(age time.Duration) { w.since.at = w.since.at.Add(-age) }

// StartsCheckpoint tells whether a checkpoint, or the first part of one, is all
// that a message holds.
func StartsCheckpoint(m *event.Message) bool { return startsCheckpoint(m) }
