package demo

import (
	"sync"

	"tidegate/binlog/gtid"
)

// version is what this program knows of one post: the newest version whose
// write the primary has acknowledged.
type version struct {
	number int64
	by     gtid.GTID // transaction that wrote it
	known  bool      // by is set: the first version was written before any session
}

// recentPosts is how many posts count as news that other sessions open.
const recentPosts = 8

// ledger remembers acknowledged writes. It may be used by many at once.
type ledger struct {
	mu     sync.Mutex
	posts  map[int64]version
	recent [recentPosts]int64 // a ring: the oldest is overwritten
	writes int
	nextID int64
}

// newLedger returns a ledger of posts 1 to first, all at version 1.
func newLedger(first int64) *ledger {
	l := &ledger{posts: make(map[int64]version, first), nextID: first}
	for id := int64(1); id <= first; id++ {
		l.posts[id] = version{number: 1}
	}
	return l
}

// newID is the id of a post that nobody has written yet.
func (l *ledger) newID() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextID++
	return l.nextID
}

// acknowledge records that the primary has acknowledged a version.
func (l *ledger) acknowledge(id, number int64, by gtid.GTID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts[id] = version{number: number, by: by, known: true}
	l.recent[l.writes%recentPosts] = id
	l.writes++
}

// newest is the newest acknowledged version of a post.
func (l *ledger) newest(id int64) version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.posts[id]
}

// news picks a post that somebody wrote lately, by a random number; ok is false
// before the first write.
func (l *ledger) news(random int) (id int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.writes, recentPosts)
	if n == 0 {
		return 0, false
	}
	return l.recent[random%n], true
}
