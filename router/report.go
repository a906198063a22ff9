package router

import (
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Report is what a router knows at one moment, for people and their tools. The
// sets are shared and immutable.
type Report struct {
	Ready        bool   // caught up with the stream, and W is young
	Reason       Reason // why not
	Detail       string
	BlindFor     time.Duration // cut off from the stream for so long; 0: it is not
	Primary      string        // the announced primary when it is known, live and alone
	WatermarkAge time.Duration // Unknown
	Delivered    gtid.Set
	Horizon      gtid.Set
	Lost         gtid.Set
	Servers      []ServerReport
}

// ServerReport is what a router knows of one server.
type ServerReport struct {
	Name     string
	Addr     string
	Role     event.Role
	UUID     gtid.UUID
	Epoch    event.Epoch
	Primary  bool   // the announced one
	Eligible bool   // for level eventual
	Reason   Reason // why not
	Detail   string

	LeaseAge  time.Duration // since the sending of the newest tick it named; Unknown
	Staleness time.Duration // Unknown
	// BehindTxns is delivered and not confirmed; of these BehindTransfer has not
	// been received by it. Unknown for a server never heard of.
	BehindTxns     int64
	BehindTransfer int64
	Confirmed      gtid.Set
	Weight         uint32
	LastSecond     uint64             // decisions for it in the last second
	State          *event.ServerState // its newest state; nil: never heard of
}

// Ready tells whether the router can prove anything: the index is caught up and
// the watermark is young. It is what /readyz shows.
func (r *Router) Ready() (ok bool, why Reason, detail string) {
	snap := r.o.View()
	now := r.o.Clock()
	if ok, detail := snap.Ready(); !ok {
		return false, ReasonCatchingUp, detail
	}
	if at := snap.WatermarkAt(); at == 0 || now-at > r.markAge {
		if snap.BlindSince() != 0 {
			return false, ReasonBlind, "cut off from the stream"
		}
		return false, ReasonWatermarkOld, snap.WatermarkRefused()
	}
	return true, ReasonNone, ""
}

// Knows tells whether a server of this name is configured, or was heard of; a
// router that has not caught up may still hear of any.
func (r *Router) Knows(server string) bool {
	snap := r.o.View()
	if ready, _ := snap.Ready(); !ready {
		return true
	}
	_, ok := snap.ServerIndex(server)
	return ok
}

// Report describes everything that the router knows. It costs allocations and
// set operations; it is not for the path of a read.
func (r *Router) Report() Report {
	req := &Request{Level: LevelEventual, Advisory: true}
	snap := r.o.View()
	q := r.question(new(scratch), snap, req, LevelEventual, r.o.Clock())
	out := Report{
		WatermarkAge: Unknown, Delivered: snap.Delivered(), Horizon: snap.Horizon(), Lost: snap.Lost(),
	}
	out.Ready, out.Reason, out.Detail = r.Ready()
	if at := snap.WatermarkAt(); at != 0 {
		out.WatermarkAge = time.Duration(q.now - at)
	}
	if at := snap.BlindSince(); at != 0 {
		out.BlindFor = time.Duration(max(1, q.now-at))
	}
	heard := map[string]bool{}
	for i := range snap.NumServers() {
		if st := snap.Server(i); st != nil {
			heard[st.Server] = true
			out.Servers = append(out.Servers, r.reportServer(&q, i, st))
			if q.primaryOK && i == q.primary {
				out.Primary = st.Server
			}
		}
	}
	for _, s := range r.o.Servers {
		if !heard[s.Name] {
			out.Servers = append(out.Servers, ServerReport{
				Name: s.Name, Weight: s.Weight, Reason: neverHeard.reason, Detail: neverHeard.detail,
				LeaseAge: Unknown, Staleness: Unknown, BehindTxns: Unknown, BehindTransfer: Unknown,
			})
		}
	}
	return out
}

func (r *Router) reportServer(q *question, i int, st *event.ServerState) ServerReport {
	p := r.peers.at(q.snap, i, st.Server)
	v := q.judge(i)
	s := ServerReport{
		Name: st.Server, Addr: st.AppAddr, Role: st.Role, UUID: st.UUID, Epoch: st.Epoch,
		Primary: q.primaryOK && i == q.primary, Eligible: v.yes(), Reason: v.reason, Detail: v.detail,
		LeaseAge: Unknown, Staleness: Unknown, Confirmed: q.snap.Confirmed(i), State: st,
		Weight: p.weight, LastSecond: p.load.lastSecond(q.now),
	}
	missing := q.missing(i)
	s.BehindTxns = int64(min(missing.Count(), 1<<62))
	if !s.Primary {
		s.BehindTransfer = int64(min(missing.Subtract(st.Received).Subtract(st.Executed).Count(), 1<<62))
	}
	if at := q.snap.LeaseAt(i); at != 0 {
		s.LeaseAge = time.Duration(q.now - at)
	}
	if at := q.snap.FreshAt(i); at != 0 {
		s.Staleness = time.Duration(q.now - at)
	}
	return s
}

// KeyReport is what a router knows of one key.
type KeyReport struct {
	Key        key.Key
	Definition key.DefVersion // the router's
	OneRow     bool
	// Newest is the newest write of the key or of a wide scope that covers it;
	// 0: none is recorded.
	Newest  event.Version
	Wide    bool      // the newest is a wide one
	GTID    gtid.GTID // of the newest; zero when it is not known
	Servers []KeyOnServer
}

// KeyOnServer tells whether one server shows a key at level key.
type KeyOnServer struct {
	Server string
	Shown  bool
	Reason Reason
	Detail string
}

// Key describes one key. Reason is set, and the rest is empty, where nothing is
// known of it (unknown_table, schema_changed, catching_up). The error is a
// *RequestError for a key that does not fit its table.
func (r *Router) Key(k key.Key) (KeyReport, Reason, error) {
	req := &Request{Keys: []key.Key{k}, Level: LevelKey, Advisory: true}
	q, err := r.ask(new(scratch), req, LevelKey)
	if err != nil {
		return KeyReport{}, ReasonNone, err
	}
	if !q.ready {
		return KeyReport{}, ReasonCatchingUp, nil
	}
	if !q.allKeys.yes() {
		return KeyReport{}, q.allKeys.reason, nil
	}
	c := &q.keys[0]
	out := KeyReport{Key: k, OneRow: c.oneRow, Newest: max(c.own, c.wide), Wide: c.wide > c.own}
	if out.Newest != 0 {
		out.GTID, _ = q.snap.GTIDAt(out.Newest)
	}
	schema, table := k.FoldedNames(q.snap.FoldNames())
	if d, ok := q.snap.Definition(schema, table); ok {
		out.Definition = d.Version
	}
	for i := range q.snap.NumServers() {
		if st := q.snap.Server(i); st != nil {
			v := q.judge(i)
			out.Servers = append(out.Servers, KeyOnServer{st.Server, v.yes(), v.reason, v.detail})
		}
	}
	return out, ReasonNone, nil
}
