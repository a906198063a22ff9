package router_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/routertest"
)

// decision is one line of rules §7 (and of what it refers to) as a question to
// server b of a healthy world that change has hurt.
type decision struct {
	name   string // rule, colon, what
	change func(t testing.TB, w *routertest.World)
	ask    string // space-separated: keys, and level=, floor=, server=, stale=, arrived=
	want   string // yes|no reason [otherwise] [stale]
	detail string // part of the detail
}

const seconds = int64(time.Second)

// decisions is the table; TestRules asks each line, and the mutation guard
// (build tag mutants) asks them all again with each rule switched off.
func decisions() []decision {
	behind := func(i int, n string, prefix int64) func(testing.TB, *routertest.World) {
		return func(t testing.TB, w *routertest.World) { w.Behind(t, i, n, prefix) }
	}
	record := func(scope func(testing.TB) key.Digest, n int64, more func(testing.TB, *routertest.World)) func(testing.TB, *routertest.World) {
		return func(t testing.TB, w *routertest.World) {
			w.Records[scope(t)] = v(n)
			if more != nil {
				more(t, w)
			}
		}
	}
	post42 := func(t testing.TB) key.Digest { return own(t, "app.posts/42") }
	author7 := func(t testing.TB) key.Digest { return own(t, "app.posts@author_id/7") }
	anyPost := func(t testing.TB) key.Digest { return own(t, "app.posts/*") }
	wide := func(d key.Digest) func(testing.TB) key.Digest {
		return func(testing.TB) key.Digest { return d }
	}
	set := func(f func(w *routertest.World)) func(testing.TB, *routertest.World) {
		return func(_ testing.TB, w *routertest.World) { f(w) }
	}
	return []decision{
		{"§7 key: nothing written", nil, "app.posts/42", "yes applied", ""},
		{"§7 key: is the default when keys are named", record(post42, 50, behind(1, "1-40", 40)), "app.posts/42", "no key_behind primary", ""},
		{"§7 key: the newest record is within the prefix", record(post42, 50, behind(1, "1-60", 60)), "app.posts/42", "yes applied", ""},
		{"§7 key: another row does not matter", record(post42, 50, behind(1, "1-40", 40)), "app.posts/43", "yes applied", ""},
		{"§7 key: own record confirmed beyond the prefix, one row", record(post42, 50, behind(1, "1-40:50", 40)), "app.posts/42", "yes applied", ""},
		{"§7 key: the own record's GTID is no longer known", func(t testing.TB, w *routertest.World) {
			w.Records[post42(t)] = v(50)
			w.Behind(t, 1, "1-40:50", 40)
			delete(w.Writers, v(50))
		}, "app.posts/42", "no key_behind primary", ""},
		{"§7 key: own record confirmed, but a failover is newer than the prefix", record(post42, 50, func(t testing.TB, w *routertest.World) {
			w.Behind(t, 1, "1-40:50", 40)
			w.Failover = v(45)
		}), "app.posts/42", "no key_behind primary", ""},
		{"§7 key: own record confirmed, failover within the prefix", record(post42, 50, func(t testing.TB, w *routertest.World) {
			w.Behind(t, 1, "1-40:50", 40)
			w.Failover = v(35)
		}), "app.posts/42", "yes applied", ""},
		{"§7 key: own record confirmed, but a wide record is newer than the prefix", record(post42, 50, func(t testing.TB, w *routertest.World) {
			w.Behind(t, 1, "1-40:50", 40)
			w.Records[posts.AllRows] = v(45)
		}), "app.posts/42", "no key_behind primary", ""},
		{"§7 key: many-row keys need the prefix, group", record(author7, 50, behind(1, "1-40:50", 40)), "app.posts@author_id/7", "no key_behind primary", ""},
		{"§7 key: many-row keys need the prefix, any row", record(anyPost, 50, behind(1, "1-40:50", 40)), "app.posts/*", "no key_behind primary", ""},
		{"§7 key: group within the prefix", record(author7, 40, behind(1, "1-40", 40)), "app.posts@author_id/7", "yes applied", ""},
		{"§3.2 all-rows of the table covers a row", record(wide(posts.AllRows), 50, behind(1, "1-40", 40)), "app.posts/42", "no key_behind primary", ""},
		{"§3.2 all-rows of the table covers a group", record(wide(posts.AllRows), 50, behind(1, "1-40", 40)), "app.posts@author_id/7", "no key_behind primary", ""},
		{"§3.2 all-rows of the table covers any row", record(wide(posts.AllRows), 50, behind(1, "1-40", 40)), "app.posts/*", "no key_behind primary", ""},
		{"§3.2 all-rows of the schema covers a row", record(wide(posts.Schema), 50, behind(1, "1-40", 40)), "app.posts/42", "no key_behind primary", ""},
		{"§3.2 all-rows of everything covers a row", record(wide(posts.Everything), 50, behind(1, "1-40", 40)), "app.posts/42", "no key_behind primary", ""},
		{"§3.2 all-rows of a group column covers its values", record(wide(authors.AllRows), 50, behind(1, "1-40", 40)), "app.posts@author_id/7", "no key_behind primary", ""},
		{"§3.2 all-rows of a group column is nothing to a row", record(wide(authors.AllRows), 50, behind(1, "1-40", 40)), "app.posts/42", "yes applied", ""},
		{"§3.2 any-row is read only by who asks for it", record(anyPost, 50, behind(1, "1-40", 40)), "app.posts/42", "yes applied", ""},
		{"§7 key: each of several keys counts", record(post42, 50, behind(1, "1-40", 40)), "app.posts/43 app.posts/42", "no key_behind primary", ""},
		{"§7 the primary is checked like any server", record(post42, 50, behind(0, "1-40", 40)), "app.posts/42 server=a", "no key_behind wait", ""},
		{"§7 the primary says so", nil, "app.posts/42 server=a", "yes primary", ""},

		{"§7 key: no watermark", set(func(w *routertest.World) { w.Watermark = 0 }), "app.posts/42", "no watermark_old primary", ""},
		{"§7 key: no watermark, and why", set(func(w *routertest.World) { w.Watermark, w.Refused = 0, "gtid_mode is ON_PERMISSIVE" }), "app.posts/42", "no watermark_old primary", "gtid_mode is ON_PERMISSIVE"},
		{"§7 key: W older than watermark_max_age", set(func(w *routertest.World) { w.Watermark = epoch0 - int64(router.DefaultWatermarkMaxAge) - 1 }), "app.posts/42", "no watermark_old primary", ""},
		{"§7 key: W as old as watermark_max_age", set(func(w *routertest.World) { w.Watermark = epoch0 - int64(router.DefaultWatermarkMaxAge) }), "app.posts/42", "yes applied", ""},
		{"§7 key: H not within C", func(t testing.TB, w *routertest.World) {
			w.HorizonSet = mustSet(t, uuidA+":1-60")
			w.Behind(t, 1, "1-50", 50)
		}, "app.posts/42", "no below_horizon primary", ""},
		{"§7 key: H within C", func(t testing.TB, w *routertest.World) {
			w.HorizonSet = mustSet(t, uuidA+":1-50")
			w.Behind(t, 1, "1-50", 50)
		}, "app.posts/42", "yes applied", ""},
		{"§7 key: H within C or lost", func(t testing.TB, w *routertest.World) {
			w.HorizonSet = mustSet(t, uuidA+":1-51")
			w.LostSet = mustSet(t, uuidA+":51")
			w.Behind(t, 1, "1-50", 50)
		}, "app.posts/42", "yes applied", ""},
		{"§5.1 before the group column was announced", func(t testing.TB, w *routertest.World) {
			w.Groups[authors.AllRows] = mustSet(t, uuidA+":1-60")
			w.Behind(t, 1, "1-50", 50)
		}, "app.posts@author_id/7", "no below_horizon primary", "announced"},
		{"§5.1 that horizon is the group column's own", func(t testing.TB, w *routertest.World) {
			w.Groups[authors.AllRows] = mustSet(t, uuidA+":1-60")
			w.Behind(t, 1, "1-50", 50)
		}, "app.posts/42", "yes applied", ""},
		{"§5.1 a lost GTID leaves it", func(t testing.TB, w *routertest.World) {
			w.Groups[authors.AllRows] = mustSet(t, uuidA+":1-50:60")
			w.LostSet = mustSet(t, uuidA+":60")
			w.Behind(t, 1, "1-50", 50)
		}, "app.posts@author_id/7", "yes applied", ""},
		{"§5.1 a group column that the stream does not announce", set(func(w *routertest.World) { delete(w.Groups, authors.AllRows) }), "app.posts@author_id/7", "no below_horizon primary", "not announced"},

		{"§7 key: F in neither D, H nor C", nil, "app.posts/42 floor=" + uuidA + ":101", "no write_unseen wait", ""},
		{"§7 key: F in D", nil, "app.posts/42 floor=" + uuidA + ":90", "yes applied", ""},
		{"§7 key: F in D but not confirmed, key not written by it", behind(1, "1-40", 40), "app.posts/42 floor=" + uuidA + ":90", "yes applied", ""},
		{"§7 key: F in C alone", func(t testing.TB, w *routertest.World) {
			w.DeliveredSet = mustSet(t, uuidA+":1-80")
		}, "app.posts/42 floor=" + uuidA + ":90", "yes applied", ""},
		{"§7 key: F in H alone", func(t testing.TB, w *routertest.World) {
			w.DeliveredSet = mustSet(t, uuidA+":51-100")
			w.HorizonSet = mustSet(t, uuidA+":1-50")
		}, "app.posts/42 floor=" + uuidA + ":1-60", "yes applied", ""},
		{"§7 key: F over D, H and C together", func(t testing.TB, w *routertest.World) {
			w.DeliveredSet = mustSet(t, uuidA+":51-80")
			w.HorizonSet = mustSet(t, uuidA+":1-50")
			w.ConfirmedSets[1] = mustSet(t, uuidA+":1-50:90")
		}, "app.posts/42 floor=" + uuidA + ":10:60:90", "yes applied", ""},
		{"§10 a lost part of F is not waited for", func(t testing.TB, w *routertest.World) {
			w.LostSet = mustSet(t, uuidA+":101")
		}, "app.posts/42 floor=" + uuidA + ":90:101 arrived=-100ms", "yes applied", ""},
		{"§10 a lost GTID may have been given again since an older E", func(t testing.TB, w *routertest.World) {
			w.LostSet = mustSet(t, uuidA+":101")
		}, "app.posts/42 floor=" + uuidA + ":90:101", "no write_unseen wait", ""},
		{"§10 key: and the stream has not come to all that the failover left", func(t testing.TB, w *routertest.World) {
			w.LostSet, w.LeftSet = mustSet(t, uuidC+":5"), mustSet(t, uuidA+":1-101")
		}, "app.posts/42 floor=" + uuidC + ":5 arrived=-100ms", "no write_unseen primary", ""},
		{"§7 key: nor where the floor was lost before it was delivered", func(t testing.TB, w *routertest.World) {
			w.LeftSet = mustSet(t, uuidA+":1-101")
			w.E = mustSet(t, uuidA+":1-101")
		}, "app.posts/42 floor=" + uuidC + ":5 arrived=-100ms", "no write_unseen primary", ""},
		{"§7 a GTID that is not in an older E stays in F", nil, "app.posts/42 floor=" + uuidA + ":101", "no write_unseen wait", ""},
		{"§7 a GTID in no E begun after the request never happened", nil, "app.posts/42 floor=" + uuidA + ":101 arrived=-100ms", "yes applied", ""},
		{"§7 in a replication group E is no bound", func(_ testing.TB, w *routertest.World) {
			st := *w.States[1]
			st.Grouped = true
			w.States[1] = &st
		}, "app.posts/42 floor=" + uuidA + ":101 arrived=-100ms", "no write_unseen wait", ""},
		{"§7 a GTID in an E begun after the request did happen", func(t testing.TB, w *routertest.World) {
			w.E = mustSet(t, uuidA+":1-101")
		}, "app.posts/42 floor=" + uuidA + ":101 arrived=-100ms", "no write_unseen wait", ""},

		{"§4 unknown table", nil, "app.nothing/42", "no unknown_table primary", "app.nothing"},
		{"§4 a dropped table", func(_ testing.TB, w *routertest.World) {
			d := *postsDef
			d.Dropped = true
			w.Defs["app.posts"] = &d
		}, "app.posts/42", "no unknown_table primary", ""},
		{"§4.3 stream and router fold with different definitions", set(func(w *routertest.World) { w.StreamDefs[posts.AnyRow] = postsDef.Version + 1 }), "app.posts/42", "no schema_changed primary", ""},
		{"§4.3 the stream folded without a definition", set(func(w *routertest.World) { w.StreamDefs[posts.AnyRow] = 0 }), "app.posts/42", "yes applied", ""},
		{"§4.3 the stream never folded rows of it", set(func(w *routertest.World) { clear(w.StreamDefs) }), "app.posts/42", "yes applied", ""},
		{"§4.3 a key that fits no more what the stream has come to", set(func(w *routertest.World) { w.StreamDefs[posts.AnyRow] = 0 }), "app.posts/1,2", "no schema_changed primary", ""},
		{"§4.3 a key that does not fit yet, of a write that is to come", nil, "app.posts/1,2 floor=" + uuidA + ":101", "no write_unseen wait", ""},
		{"§4.3 names fold as on the primary", set(func(w *routertest.World) {
			w.Fold = true
			d := *postsDef
			d.FoldNames = true
			d.Seal()
			w.Defs["app.posts"] = &d
			w.StreamDefs[posts.AnyRow] = d.Version
		}), "App.Posts/42", "yes applied", ""},
		{"§4.3 a definition of a primary that folded names otherwise", set(func(w *routertest.World) { w.Fold = true }), "App.Posts/42", "no schema_changed primary", ""},
		{"§4.3 or do not", nil, "App.Posts/42", "no unknown_table primary", ""},

		{"§7 eligible: the index is not ready", set(func(w *routertest.World) { w.IsReady, w.ReadyDetail = false, "rebuilding" }), "app.posts/42", "no catching_up primary", "rebuilding"},
		{"§7 eligible: not ready, at eventual too", set(func(w *routertest.World) { w.IsReady = false }), "level=eventual", "no catching_up primary", ""},
		{"§6.3 the pinned connection is lost", set(func(w *routertest.World) { w.States[1].Alive = false }), "level=eventual", "no lease_expired primary", ""},
		{"§6.3 the lease is over", set(func(w *routertest.World) { w.Leases[1] = epoch0 - int64(router.DefaultLease) - 1 }), "level=eventual", "no lease_expired primary", ""},
		{"§6.3 no tick was ever named", set(func(w *routertest.World) { w.Leases[1] = 0 }), "level=eventual", "no lease_expired primary", ""},
		{"§7 eligible: the role is not known", set(func(w *routertest.World) { w.States[1].Role = event.RoleUnknown }), "level=eventual", "no excluded primary", "role"},
		{"§2.5 relaxed durability and a restart", set(func(w *routertest.World) { w.IneligibleFor[1] = "epoch_changed" }), "level=eventual", "no epoch_changed primary", ""},
		{"§2.3, §10 an errant or lost identity held", set(func(w *routertest.World) { w.IneligibleFor[1] = "excluded" }), "app.posts/42", "no excluded primary", ""},
		{"§2.3 a reason of the index that the list lacks", set(func(w *routertest.World) { w.IneligibleFor[1] = "something new" }), "level=eventual", "no excluded primary", ""},
		{"§2.4 an engine that a restart empties", set(func(w *routertest.World) {
			d := *postsDef
			d.Engine = "MEMORY"
			w.Defs["app.posts"] = &d
		}), "app.posts/42", "no excluded primary", ""},
		{"§2.4 an engine that a restart empties, at eventual", set(func(w *routertest.World) {
			d := *postsDef
			d.Engine = "memory"
			w.Defs["app.posts"] = &d
		}), "app.posts/42 level=eventual", "no excluded primary", ""},
		{"§2.4 a tainted table", set(func(w *routertest.World) { w.ExcludedTables[1] = posts.AnyRow }), "app.posts/42", "no excluded primary", ""},
		{"§2.4 a tainted table at eventual", set(func(w *routertest.World) { w.ExcludedTables[1] = posts.AnyRow }), "app.posts/42 level=eventual", "no excluded primary", ""},
		{"§2.4 another table's taint", set(func(w *routertest.World) { w.ExcludedTables[1] = key.Digest{9} }), "app.posts/42", "yes applied", ""},
		{"§2.4 without keys any taint counts", set(func(w *routertest.World) { w.States[1].Taints = []event.Taint{{Name: "app.x"}} }), "level=eventual", "no excluded primary", "name the keys"},
		{"§2.4 without keys a filter counts where something is promised", set(func(w *routertest.World) { w.States[1].Filtered = []string{"app.x"} }), "level=session floor=" + uuidA + ":9", "no excluded primary", "name the keys"},
		{"§2.4 eventual promises nothing about filtered tables", set(func(w *routertest.World) { w.States[1].Filtered = []string{"app.x"} }), "level=eventual", "yes applied", ""},
		{"§7 no server of that name", nil, "level=eventual server=z", "no unknown_server primary", ""},

		{"§7 a configured server that was never heard of", nil, "level=eventual server=configured", "no lease_expired primary", "heard"},
		{"§7 eventual: nothing more", behind(1, "1-2", 2), "level=eventual", "yes applied", ""},
		{"§7 bounded: within", nil, "level=bounded stale=30ms", "yes applied", ""},
		{"§7 bounded: beyond", nil, "level=bounded stale=29ms", "no too_stale primary", ""},
		{"§7 bounded: staleness is not known", set(func(w *routertest.World) { w.FreshTimes[1] = 0 }), "level=bounded stale=1h", "no too_stale primary", ""},
		{"§7 bounded with another level: both", nil, "app.posts/42 stale=29ms", "no too_stale primary", ""},
		{"§7 session: F confirmed", behind(1, "1-90", 90), "level=session floor=" + uuidA + ":90", "yes applied", ""},
		{"§7 session: F not confirmed", behind(1, "1-40", 40), "level=session floor=" + uuidA + ":41", "no session_behind primary", ""},
		{"§7 session: F confirmed or lost", func(t testing.TB, w *routertest.World) {
			w.LostSet = mustSet(t, uuidC+":5")
		}, "level=session floor=" + uuidA + ":90," + uuidC + ":5 arrived=-100ms", "yes applied", ""},
		{"§7 session: of a floor that lost its newest write, what is older is shown", func(t testing.TB, w *routertest.World) {
			w.LostSet, w.LeftSet = mustSet(t, uuidC+":5"), mustSet(t, uuidA+":1-95")
			w.Behind(t, 1, "1-94", 94)
		}, "level=session floor=" + uuidC + ":5 arrived=-100ms", "no session_behind primary", ""},
		{"§7 session: up to the announcement", func(t testing.TB, w *routertest.World) {
			w.LostSet, w.LeftSet = mustSet(t, uuidC+":5"), mustSet(t, uuidA+":1-95")
			w.Behind(t, 1, "1-95", 95)
		}, "level=session floor=" + uuidC + ":5 arrived=-100ms", "yes applied", ""},
		{"§7 session: what the failover left and the stream has not come to", func(t testing.TB, w *routertest.World) {
			w.LostSet, w.LeftSet = mustSet(t, uuidC+":5"), mustSet(t, uuidA+":1-101")
		}, "level=session floor=" + uuidC + ":5 arrived=-100ms", "no session_behind primary", ""},
		{"§7 session: what was announced and lost since is not waited for", func(t testing.TB, w *routertest.World) {
			w.LostSet, w.LeftSet = mustSet(t, uuidC+":5,"+uuidA+":101"), mustSet(t, uuidA+":1-101")
		}, "level=session floor=" + uuidC + ":5 arrived=-100ms", "yes applied", ""},
		{"§7 session: lost before it was delivered", func(t testing.TB, w *routertest.World) {
			w.LeftSet = mustSet(t, uuidA+":1-95")
			w.Behind(t, 1, "1-94", 94)
		}, "level=session floor=" + uuidA + ":101 arrived=-100ms", "no session_behind primary", ""},
		{"§7 session: a floor that is all there needs nothing more", func(t testing.TB, w *routertest.World) {
			w.LeftSet = mustSet(t, uuidA+":1-95")
			w.Behind(t, 1, "1-94", 94)
		}, "level=session floor=" + uuidA + ":90 arrived=-100ms", "yes applied", ""},
		{"§7 session: the primary shows what it announced", func(t testing.TB, w *routertest.World) {
			w.LostSet, w.LeftSet = mustSet(t, uuidC+":5"), mustSet(t, uuidA+":1-200")
		}, "level=session server=a floor=" + uuidC + ":5 arrived=-100ms", "yes primary", ""},
		{"§7 session: an empty floor is a floor", nil, "level=session floor=", "yes applied", ""},
		{"§7 session: never happened", nil, "level=session floor=" + uuidA + ":101 arrived=-100ms", "yes applied", ""},
		{"§7 session: may have happened", nil, "level=session floor=" + uuidA + ":101", "no session_behind wait", ""},
		{"§7 strong: a replica", nil, "level=strong", "no strong primary", ""},
		{"§7 strong: the primary", nil, "level=strong server=a", "yes primary", ""},
		{"§7 strong: the primary lacks F (semi-sync without an ack)", nil, "level=strong server=a floor=" + uuidA + ":101", "no write_unseen wait", ""},

		{"§7 no primary: key", set(func(w *routertest.World) { w.HasPrimary, w.PrimaryReason = false, "no_primary" }), "app.posts/42", "no no_primary refuse", ""},
		{"§7 not announced: key", set(func(w *routertest.World) { w.HasPrimary, w.PrimaryReason = false, "catching_up" }), "app.posts/42", "no catching_up wait", ""},
		{"§7 no primary: session", set(func(w *routertest.World) { w.HasPrimary = false }), "level=session floor=" + uuidA + ":9", "no no_primary refuse", ""},
		{"§7 no primary: strong", set(func(w *routertest.World) { w.HasPrimary = false }), "level=strong server=a", "no no_primary refuse", ""},
		{"§7 no primary: bounded", set(func(w *routertest.World) { w.HasPrimary = false }), "level=bounded stale=1s", "yes applied", ""},
		{"§7 no primary: eventual", set(func(w *routertest.World) { w.HasPrimary = false }), "level=eventual", "yes applied", ""},
		{"§6.3 the primary's lease is over", set(func(w *routertest.World) { w.Leases[0] = epoch0 - int64(router.DefaultLease) - 1 }), "app.posts/42", "no no_primary refuse", "lease"},

		{"P3 blind: eventual is stale", set(func(w *routertest.World) { w.CutOff() }), "level=eventual", "yes blind stale", ""},
		{"P3 blind: bounded is stale", set(func(w *routertest.World) { w.CutOff() }), "level=bounded stale=1s", "yes blind stale", ""},
		{"P3 blind: key goes to the primary within the budget", set(func(w *routertest.World) { w.CutOff() }), "app.posts/42", "no blind primary", ""},
		{"P3 blind: not for a server known to be down", set(func(w *routertest.World) { w.CutOff(); w.States[1].Alive = false }), "level=eventual", "no blind primary", ""},
		{"P3 blind: not for an excluded server", set(func(w *routertest.World) { w.CutOff(); w.IneligibleFor[1] = "excluded" }), "level=eventual", "no blind primary", ""},
		{"P3 blind: not for a tainted table, not even before the index is ready", set(func(w *routertest.World) {
			w.CutOff()
			w.IsReady = false
			w.ExcludedTables[1] = posts.AnyRow
		}), "app.posts/42 level=eventual", "no blind primary", ""},
		{"P3 blind: not for a server never heard of", set(func(w *routertest.World) {
			w.CutOff()
			w.IsReady = false
			w.Leases[1] = 0
			w.States[1].Role = event.RoleUnknown
		}), "level=eventual", "no blind primary", ""},
		{"P3 blind: while lease and watermark are young nothing changes", set(func(w *routertest.World) { w.Blind = epoch0 - 1 }), "app.posts/42", "yes applied", ""},
		{"P3 dead watermark: bounded is stale", set(func(w *routertest.World) { w.Watermark, w.FreshTimes[1] = 0, 0 }), "level=bounded stale=1s", "yes blind stale", ""},
		{"P3 dead watermark: not without a primary", set(func(w *routertest.World) { w.Watermark, w.FreshTimes[1], w.HasPrimary = 0, 0, false }), "level=bounded stale=1s", "no too_stale wait", ""},
		{"P3 dead watermark: a lease that is over stays over", set(func(w *routertest.World) { w.Watermark, w.Leases[1] = 0, 0 }), "level=eventual", "no lease_expired primary", ""},
		{"P2 the records moved on and were looked up again", set(func(w *routertest.World) { w.Moves = 3 }), "app.posts/42", "yes applied", ""},
		{"P2 the records moved on and what they now say counts", record(post42, 50, func(t testing.TB, w *routertest.World) {
			w.Behind(t, 1, "1-40", 40)
			w.Moves = 1
		}), "app.posts/42", "no key_behind primary", ""},
		{"P3 the records never hold still", set(func(w *routertest.World) { w.Moves = 1000 }), "app.posts/42", "no catching_up primary", ""},
	}
}

func TestRules(t *testing.T) {
	for _, d := range decisions() {
		t.Run(d.name, func(t *testing.T) {
			if got, want := d.decide(t), d.want; got != want {
				t.Errorf("ask %q: got %q, want %q", d.ask, got, want)
			}
		})
	}
}

// decide asks the line's question and prints the answer as the table does.
func (d decision) decide(t testing.TB) string {
	t.Helper()
	w := healthy(t)
	if d.change != nil {
		d.change(t, w)
	}
	req := parseAsk(t, d.ask)
	var ans router.Answer
	r := newRouter(t, w, func(o *router.Options) { o.Servers = []router.ServerOptions{{Name: "configured", Weight: 1}} })
	if err := r.Serve(&req, &ans); err != nil {
		return "error " + err.Error()
	}
	if !strings.Contains(ans.Detail, d.detail) {
		return "detail " + ans.Detail
	}
	return printAnswer(&ans)
}

func printAnswer(ans *router.Answer) string {
	s := "no "
	if ans.Yes {
		s = "yes "
	}
	s += ans.Reason.String()
	if o := ans.Otherwise.String(); o != "" {
		s += " " + o
	}
	if ans.Stale {
		s += " stale"
	}
	return s
}

// parseAsk reads a question as the tables write it.
func parseAsk(t testing.TB, ask string) router.Request {
	t.Helper()
	req := router.Request{Server: "b", Explain: true}
	for _, f := range strings.Fields(ask) {
		name, value, ok := strings.Cut(f, "=")
		switch {
		case !ok:
			req.Keys = append(req.Keys, mustKey(t, f))
		case name == "level":
			if req.Level, ok = router.ParseLevel(value); !ok {
				t.Fatalf("no level %q", value)
			}
		case name == "floor":
			req.Floor, req.HasFloor = mustSet(t, value), true
		case name == "server":
			req.Server = value
		case name == "stale", name == "arrived":
			dur, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			if name == "stale" {
				req.MaxStaleness, req.HasBound = dur, true
			} else {
				req.ArrivedAt = epoch0 + int64(dur)
			}
		case name == "exclude":
			req.Exclude = append(req.Exclude, value)
		case name == "intx":
			req.InTransaction = true
		default:
			t.Fatalf("unknown field %q", f)
		}
	}
	return req
}

func TestRequestsWithoutMeaning(t *testing.T) {
	for _, c := range []struct {
		ask  string
		code router.ErrorCode
	}{
		{"", router.CodeLevelRequired},
		{"level=key", router.CodeKeysRequired},
		{"level=session", router.CodeFloorRequired},
		{"level=bounded", router.CodeBoundRequired},
		{"app.posts/x", router.CodeBadKey},
		{"app.posts/1,2", router.CodeBadKey},
		{"app.posts/99999999999999999999", router.CodeBadKey},
		{"app.posts@title/1", router.CodeBadKey},
		{"level=eventual app.posts/x", router.CodeBadKey},
		{"app.posts/x floor=" + uuidA + ":90", router.CodeBadKey},
		{"app.posts/x floor=" + uuidA + ":101 arrived=-100ms", router.CodeBadKey}, // never happened
	} {
		t.Run(c.ask, func(t *testing.T) {
			r := newRouter(t, healthy(t))
			req := parseAsk(t, c.ask)
			var ans router.Answer
			err := r.Serve(&req, &ans)
			var re *router.RequestError
			if !errors.As(err, &re) || re.Code != c.code {
				t.Fatalf("got %v, want code %s", err, c.code)
			}
			if n := r.Counters().BadInput; n != 1 {
				t.Errorf("bad input was counted %d times, want once", n)
			}
		})
	}
	t.Run("too many keys", func(t *testing.T) {
		req := parseAsk(t, "app.posts/1")
		for range router.MaxKeys {
			req.Keys = append(req.Keys, req.Keys[0])
		}
		var ans router.Answer
		var re *router.RequestError
		if err := newRouter(t, healthy(t)).Serve(&req, &ans); !errors.As(err, &re) || re.Code != router.CodeTooLarge {
			t.Fatalf("got %v, want too_large", err)
		}
	})
}
