package gtid

// DecodeBinaryLike is [DecodeBinary] for bytes that are likely to tell nearly
// what like holds, as the next state of a server does: what is the same is
// shared with like instead of being made anew. That is less garbage, and makes
// what compares the two cheap, since shared parts are not looked into. The
// result does not depend on like.
func DecodeBinaryLike(b []byte, like Set) (Set, []byte, error) {
	if like.b != nil {
		d := decoder{in: b}
		if s, ok := d.setLike(like.b); ok {
			return s, b[d.pos:], nil
		}
	}
	return DecodeBinary(b)
}

// setLike reads a set with the sources of like; of anything else it tells
// nothing.
func (d *decoder) setLike(like *body) (Set, bool) {
	uuids, err := d.count(minUUIDBytes)
	if err != nil {
		return Set{}, false
	}
	var changed []*run // nil: as like, so far
	src, i := like.idx.src, 0
	for range uuids {
		u, err := d.uuid()
		if err != nil {
			return Set{}, false
		}
		sources, err := d.count(minSourceBytes)
		// A UUID's sources are all or none in this loop: fewer would leave some
		// for the next UUID, which is another one.
		if err != nil || sources == 0 || sources > len(src)-i {
			return Set{}, false
		}
		for range sources {
			if src[i].UUID != u || !d.passTag(src[i].Tag) {
				return Set{}, false
			}
			r, err := d.runLike(like.runs[i])
			if err != nil {
				return Set{}, false
			}
			if changed == nil && r != like.runs[i] {
				changed = append(make([]*run, 0, len(src)), like.runs[:i]...)
			}
			if changed != nil {
				changed = append(changed, r)
			}
			i++
		}
		if i < len(src) && src[i].UUID == u {
			return Set{}, false
		}
	}
	switch {
	case i != len(src):
		return Set{}, false
	case changed == nil:
		return Set{b: like}, true
	}
	return makeSet(like.idx, changed), true
}

// passTag passes over a tag, if it is this one.
func (d *decoder) passTag(tag string) bool {
	n, err := d.count(1)
	if err != nil || string(d.in[d.pos:d.pos+n]) != tag {
		return false
	}
	d.pos += n
	return true
}

// runLike reads the intervals of a source. It returns like where they are the
// same, and shares what lies before the last where only that differs: a set
// grows there.
func (d *decoder) runLike(like *run) (*run, error) {
	n, err := d.count(minIntervalBytes)
	if err != nil {
		return nil, err
	}
	at, floor := d.pos, uint64(1)
	for k := 0; n == like.len(); k++ {
		iv, err := d.interval(&floor)
		switch {
		case err != nil:
			return nil, err
		case k == n-1 && iv == like.last:
			return like, nil
		case k == n-1:
			return &run{head: like.head, last: iv, count: like.count - like.last.Len() + iv.Len()}, nil
		case iv != like.head[k]:
			d.pos = at
			return d.run(n)
		}
	}
	return d.run(n)
}

// run reads n intervals.
func (d *decoder) run(n int) (*run, error) {
	if n == 0 {
		return nil, corrupt(d.pos, "source without intervals")
	}
	ivs := make([]Interval, 0, n)
	floor := uint64(1)
	for range n {
		iv, err := d.interval(&floor)
		if err != nil {
			return nil, err
		}
		ivs = append(ivs, iv)
	}
	return newRun(ivs), nil
}
