package local

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine is one whose clocks the test moves.
type machine struct{ wall, mono, boot int64 }

func (m *machine) run(d int64) {
	m.wall, m.mono, m.boot = m.wall+d, m.mono+d, m.boot+d
}

// suspend: wall clock and boot clock go on, the monotonic one does not.
func (m *machine) suspend(d int64) {
	m.wall, m.boot = m.wall+d, m.boot+d
}

// decisionClock is one on m. between is called after the boot clock was read.
func decisionClock(m *machine, asked *int, between func()) *DecisionClock {
	return newDecisionClock(
		func() (int64, int64) { return m.wall, m.mono },
		func() int64 { *asked++; t := m.boot; between(); return t })
}

// Whatever the clocks do, a reading is never too early and at most the slack too
// late, as long as the wall clock is not set back by what it was suspended for.
func TestDecisionClockIsNeverTooEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{wall: 1_700_000_000e9, boot: 5e9}
		asked := 0
		c := decisionClock(m, &asked, func() {
			m.run(rapid.Int64Range(0, 2*calibrationSlack).Draw(t, "held up"))
			if rapid.IntRange(0, 9).Draw(t, "suspended while asking") == 0 {
				m.suspend(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "for"))
			}
		})
		duration := rapid.OneOf(rapid.Int64Range(1, int64(time.Microsecond)), rapid.Int64Range(1, 3*calibrationAge), rapid.Int64Range(1, int64(time.Hour)))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch d := duration.Draw(t, "duration"); rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				m.suspend(d + int64(time.Millisecond)) // no machine is back sooner
			case 1:
				m.wall += d // set forward
			case 2:
				m.wall -= d
				// Nothing is asked of a suspension and a step that cancel out within
				// a millisecond: that is the hole that is left.
				m.run(calibrationAge + 1)
			default:
				m.run(d)
			}
			at := m.boot
			got := c.Now()
			if got < at {
				t.Fatalf("read %d ns too early", at-got)
			}
			if got > m.boot+calibrationSlack {
				t.Fatalf("read %d ns too late", got-m.boot)
			}
		}
	})
}

func TestDecisionClockAsksSeldom(t *testing.T) {
	m := &machine{wall: 1_700_000_000e9, boot: 5e9}
	asked := 0
	c := decisionClock(m, &asked, func() {})
	ask := func(want int, why string) {
		t.Helper()
		asked = 0
		for range 10 {
			m.run(100)
			if got := c.Now(); got != m.boot {
				t.Errorf("%s: %d, want %d", why, got, m.boot)
			}
		}
		if asked != want {
			t.Errorf("%s: asked the boot clock %d times, want %d", why, asked, want)
		}
	}
	ask(1, "at first")
	ask(0, "right afterwards")
	m.suspend(int64(time.Millisecond))
	ask(1, "after a suspension")
	m.wall -= int64(time.Second)
	ask(1, "after a step back of the wall clock")
	m.run(calibrationAge)
	ask(1, "when the calibration is old")
	m.suspend(int64(time.Hour))
	m.wall -= int64(time.Hour)
	m.run(calibrationAge)
	ask(1, "when both cancelled out, a millisecond later")
}

func TestDecisionClockAgainstTheBootClock(t *testing.T) {
	c := NewDecisionClock()
	for range 100_000 {
		before := Clock()
		got := c.Now()
		after := Clock()
		if got < before || got > after+calibrationSlack {
			t.Fatalf("read %d, want %d to %d", got, before, after+calibrationSlack)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { c.Now() }); n != 0 {
		t.Errorf("%v allocations a reading, want none", n)
	}
}

func BenchmarkClock(b *testing.B) {
	b.Run("boot", func(b *testing.B) {
		for b.Loop() {
			Clock()
		}
	})
	b.Run("decision", func(b *testing.B) {
		c := NewDecisionClock()
		for b.Loop() {
			c.Now()
		}
	})
}
