package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
)

const (
	// sessions is how many users act at once: enough to keep writes and reads
	// coming, few enough for a small machine.
	sessions = 16
	// postsEach is how many posts a session begins with, and how many it
	// remembers.
	postsEach = 8
	// floorWrites is how many of its own newest writes a session carries as its
	// floor. Older ones were acknowledged long before any watermark that counts,
	// so that level key covers them without a floor.
	floorWrites = 16
	// giveUp bounds how long a read asks for a server.
	giveUp = 2 * time.Second
)

// user is one session: it writes posts and reads them back, and now and then
// opens what somebody else has just written. It belongs to one goroutine.
type user struct {
	d      *demo
	number int
	rng    *rand.Rand
	writer *writer

	posts     []int64     // ids, oldest first
	wrote     []gtid.GTID // newest last
	floor     gtid.Set
	lastWrite time.Time
}

// newUser makes a session whose choices follow from the demo's seed.
func (d *demo) newUser(number int) *user {
	u := &user{d: d, number: number, rng: rand.New(rand.NewPCG(d.seed, uint64(number)))}
	for id := int64(1); id <= d.firstPosts(); id++ {
		if int(id-1)%sessions == number {
			u.posts = append(u.posts, id)
		}
	}
	return u
}

// run acts until ctx ends: a few writes, each read back at once and again a
// little later, then a while of reading alone, long enough for the fixed window
// of the sticky policy to pass.
func (u *user) run(ctx context.Context) (err error) {
	if u.writer, err = u.d.servers.newWriter(ctx); err != nil {
		return u.unlessEnded(ctx, err)
	}
	defer func() { _ = u.writer.close() }()
	if !u.pause(ctx, 0, 500*time.Millisecond) {
		return nil
	}
	for {
		for range 1 + u.rng.IntN(3) {
			id, err := u.write(ctx)
			if err != nil {
				return u.unlessEnded(ctx, err)
			}
			for _, longest := range []time.Duration{40 * time.Millisecond, 300 * time.Millisecond} {
				if !u.pause(ctx, 0, longest) {
					return nil
				}
				if err := u.read(ctx, id); err != nil {
					return u.unlessEnded(ctx, err)
				}
			}
		}
		quiet := time.Now().Add(u.between(time.Second, 12*time.Second))
		for time.Now().Before(quiet) {
			if !u.pause(ctx, 50*time.Millisecond, 250*time.Millisecond) {
				return nil
			}
			if err := u.read(ctx, u.choose()); err != nil {
				return u.unlessEnded(ctx, err)
			}
		}
	}
}

// unlessEnded hides errors that come from the end itself.
func (u *user) unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("session %d: %w", u.number, err)
}

func (u *user) between(least, most time.Duration) time.Duration {
	return least + time.Duration(u.rng.Int64N(int64(most-least)))
}

// pause waits a random time and says whether to go on.
func (u *user) pause(ctx context.Context, least, most time.Duration) bool {
	return wait(ctx, u.between(least, most))
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// choose picks a post to read: one in four times what somebody wrote lately,
// else one of the session's own.
func (u *user) choose() int64 {
	if u.rng.IntN(4) == 0 {
		if id, ok := u.d.ledger.news(u.rng.IntN(1 << 20)); ok {
			return id
		}
	}
	return u.posts[u.rng.IntN(len(u.posts))]
}

// write commits a new post, or a new version of one of the session's own. No
// other session writes these, so that the next version is known.
func (u *user) write(ctx context.Context) (id int64, err error) {
	var query string
	number := int64(1)
	fresh := u.rng.IntN(2) == 0
	if fresh {
		id = u.d.ledger.newID()
		query = fmt.Sprintf("INSERT INTO posts VALUES (%d, %d, %d, 'post %d by session %d')", id, u.number, number, id, u.number)
	} else {
		id = u.posts[u.rng.IntN(len(u.posts))]
		number = u.d.ledger.newest(id).number + 1
		query = fmt.Sprintf("UPDATE posts SET version = %d, body = 'post %d by session %d, edited %d times' WHERE id = %d", number, id, u.number, number-1, id)
	}
	g, err := u.writer.commit(ctx, query)
	if err != nil {
		return 0, err
	}
	u.d.ledger.acknowledge(id, number, g)
	u.lastWrite = time.Now()
	if u.wrote = append(u.wrote, g); len(u.wrote) > floorWrites {
		u.wrote = u.wrote[1:]
	}
	u.floor = gtid.Of(u.wrote...)
	if fresh {
		if u.posts = append(u.posts, id); len(u.posts) > postsEach {
			u.posts = u.posts[1:]
		}
	}
	return id, nil
}

// read lets each policy choose a server for the same post at the same moment,
// then looks at what the servers show, and judges: a read is stale when it
// shows less than the newest version that was acknowledged before it began.
func (u *user) read(ctx context.Context, id int64) error {
	want := u.d.ledger.newest(id)
	ans, err := u.route(ctx, id, want)
	if err != nil {
		return err
	}
	var r read
	replica := 1 + u.rng.IntN(len(u.d.servers.all)-1)
	r.target = [policies]int{anyReplica: replica, sticky: replica, tidegate: nobody}
	if !u.lastWrite.IsZero() && time.Since(u.lastWrite) < stickyFor {
		r.target[sticky] = 0
	}
	if ans.Yes {
		if r.target[tidegate] = u.d.servers.place(ans.Server); r.target[tidegate] == nobody {
			return fmt.Errorf("the router names server %q, which the demo does not have", ans.Server)
		}
	}

	// The oracle asks every replica, at the moment of these very reads.
	ask := make([]bool, len(u.d.servers.all))
	for i := range ask {
		ask[i] = i > 0
	}
	for _, i := range r.target {
		if i != nobody {
			ask[i] = true
		}
	}
	shown, err := u.d.servers.shown(ctx, id, ask)
	if err != nil {
		return err
	}
	for i := 1; i < len(shown); i++ {
		r.oracle = r.oracle || shown[i] >= want.number
	}
	for p, i := range r.target {
		r.stale[p] = i != nobody && shown[i] < want.number
	}
	u.d.tally.add(r, func() string { return u.evidence(id, want, shown, &ans) })
	return nil
}

// route asks Tidegate which server to read. The floor is what the session wrote
// lately, and what it was told of: whoever opens a post came by a link that
// carries the GTID of the version it was made for. Tidegate's "ask again"
// is obeyed, for a bounded time.
func (u *user) route(ctx context.Context, id int64, want version) (ans router.Answer, err error) {
	k, err := key.Parse(postKey(id))
	if err != nil {
		return ans, err
	}
	floor := u.floor
	if want.known {
		floor = floor.Add(want.by)
	}
	req := router.Request{Keys: []key.Key{k}, Floor: floor, HasFloor: true, Explain: true}
	deadline := time.Now().Add(giveUp)
	for {
		if err := u.d.program.Router.Route(ctx, &req, &ans); err != nil {
			return ans, fmt.Errorf("ask for %s: %w", postKey(id), err)
		}
		if ans.Yes || time.Now().After(deadline) {
			return ans, nil
		}
		if !wait(ctx, max(ans.RetryAfter, 5*time.Millisecond)) {
			return ans, errors.Join(errEnded, ctx.Err())
		}
	}
}

var errEnded = errors.New("the demo ended")

func postKey(id int64) string { return fmt.Sprintf("app.posts/%d", id) }

// evidence is all that explains a stale read.
func (u *user) evidence(id int64, want version, shown []int64, ans *router.Answer) string {
	s := fmt.Sprintf("seed %d, session %d, %s: acknowledged version %d", u.d.seed, u.number, postKey(id), want.number)
	if want.known {
		s += " by " + want.by.String()
	}
	s += fmt.Sprintf("; answer: %s at level %s, reason %s, detail %q, epoch %d, server_uuid %s, staleness %s, watermark age %s; shown:",
		ans.Server, ans.Level, ans.Reason, ans.Detail, ans.Epoch, ans.UUID, ans.Staleness, ans.WatermarkAge)
	for i, v := range shown {
		if v != unread {
			s += fmt.Sprintf(" %s %d", u.d.servers.name(i), v)
		}
	}
	return s + "; floor " + u.floor.OneLine()
}
