package index

import "tidegate/cdc/event"

// distrust is a run of a server that has contradicted a yes.
type distrust struct {
	epoch event.Epoch
	why   string
}

// Distrust takes a run of a server out of use, because a yes that it gave
// reason for was contradicted by its rows: neither this epoch nor an earlier
// one of the server is eligible any more (`epoch_changed`). A later epoch is.
// It returns false when the server is not known or has a later epoch already.
func (ix *Index) Distrust(server string, epoch event.Epoch, why string) bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	i, ok := ix.names[server]
	if !ok {
		return false
	}
	sv := ix.servers[i]
	if s := sv.view.state; s != nil && s.Epoch > epoch {
		return false
	}
	if sv.distrust == nil || epoch > sv.distrust.epoch {
		sv.distrust = &distrust{epoch, why}
	}
	ix.judge(sv)
	ix.publish()
	return true
}
