package tailing

import (
	"log/slog"
	"sync"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// others notices that every server behind the configured names is another one
// than the stream knows, as after a start of new servers on an old data_dir. All
// answers stay right, with what the former servers wrote counted as lost; people are
// told, since either the servers or the data_dir is not the one they mean. Its
// methods may be called at once by many.
type others struct {
	servers int // that this process watches

	mu    sync.Mutex
	other map[string]bool // by server met: it is another one
}

// met takes in the state of a server that was known under the UUID before; the
// zero UUID: it was not known.
func (o *others) met(log *slog.Logger, before gtid.UUID, state *event.ServerState) {
	if !state.Alive {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, again := o.other[state.Server]; again {
		return
	}
	if o.other == nil {
		o.other = map[string]bool{}
	}
	o.other[state.Server] = before != gtid.UUID{} && before != state.UUID
	if len(o.other) < o.servers || o.servers < 2 { // a single one may have been rebuilt
		return
	}
	for _, other := range o.other {
		if !other {
			return
		}
	}
	log.Warn("none of the servers is one that the stream knows by its name: what the former ones wrote counts as lost; when these servers have nothing to do with those, stop and start on an empty data_dir, or under another cluster name")
}
