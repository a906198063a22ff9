package bench

import (
	"fmt"
	"strconv"
	"strings"
)

// The kernel reports processor time to programs in hundredths of a second,
// whatever its own clock is.
const ticksPerSecond = 100

// parseStat reads utime + stime of a /proc/PID/stat line, in microseconds. The
// program's name, in brackets, may hold anything.
func parseStat(s string) (float64, error) {
	const utime, stime = 11, 12 // fields behind the name, from 0
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) <= stime {
		return 0, fmt.Errorf("stat line %q is too short", s)
	}
	var ticks uint64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat line: %w", err)
		}
		ticks += n
	}
	return float64(ticks) * 1e6 / ticksPerSecond, nil
}
