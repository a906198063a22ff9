package index

import (
	"sort"
	"time"

	"tidegate/cdc/event"
)

// arrivals remember when versions came, by this router's clock: a soft hint for
// a person who waits (the notice), never a part of a decision. Versions from
// before the first one remembered came at no known time.
type arrivals struct {
	// list is oldest first; snapshots share it, so that it only grows at its end
	// or is replaced.
	list []arrival
}

// arrival says that versions from this one on came at this time or later.
type arrival struct {
	from event.Version
	at   int64
}

const (
	// arrivalGap is how finely times are kept.
	arrivalGap = int64(10 * time.Millisecond)
	// maxArrivals bounds memory; beyond it older times become coarser, in
	// proportion to their age.
	maxArrivals = 256
)

// note takes the first version of a message that came now.
func (a *arrivals) note(from event.Version, now int64) {
	if n := len(a.list); n > 0 {
		last := a.list[n-1]
		if now-last.at < arrivalGap || from <= last.from {
			return
		}
		if n == maxArrivals {
			a.thin(now)
		}
	}
	a.list = append(a.list, arrival{from, now})
}

// thin drops the one whose absence costs the least for its age, into a new list.
func (a *arrivals) thin(now int64) {
	drop, least := 1, 0.0
	for i := 1; i < len(a.list)-1; i++ {
		gap := float64(a.list[i+1].at - a.list[i-1].at)
		if cost := gap / float64(now-a.list[i+1].at+1); i == 1 || cost < least {
			drop, least = i, cost
		}
	}
	list := append(make([]arrival, 0, maxArrivals), a.list[:drop]...)
	a.list = append(list, a.list[drop+1:]...)
}

// when a version came at the earliest; 0: not known.
func when(list []arrival, v event.Version) int64 {
	i := sort.Search(len(list), func(i int) bool { return list[i].from > v })
	if i == 0 {
		return 0
	}
	return list[i-1].at
}
