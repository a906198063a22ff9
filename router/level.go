package router

// Level is how much a read must show (rules §7). The zero value stands for
// "not said": key when keys are named, an error when none are.
type Level uint8

// The levels.
const (
	LevelUnset    Level = iota
	LevelEventual       // any eligible server
	LevelBounded        // at most so stale
	LevelSession        // shows the caller's floor
	LevelKey            // shows every write of the named keys acknowledged before the watermark
	LevelStrong         // the primary
	numLevels
)

var levelNames = [numLevels]string{"", "eventual", "bounded", "session", "key", "strong"}

// String returns the level as callers write it; empty for LevelUnset.
func (l Level) String() string {
	if l < numLevels {
		return levelNames[l]
	}
	return ""
}

// ParseLevel reads a level as callers write it; ok is false for anything else,
// the empty string included.
func ParseLevel(s string) (l Level, ok bool) {
	for i := LevelUnset + 1; i < numLevels; i++ {
		if levelNames[i] == s {
			return i, true
		}
	}
	return LevelUnset, false
}

// Levels returns every level by name, weakest first, for references and
// metrics.
func Levels() []string { return append([]string(nil), levelNames[LevelEventual:]...) }

// promises tells whether the level promises something about writes, so that it
// needs a primary that is known, announced, live and alone (rules §7).
func (l Level) promises() bool { return l >= LevelSession }
