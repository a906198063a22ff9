package rulestest

// Shrink returns a small run that violates the same property: steps are deleted,
// features switched off and bytes made small while it still does. A step that
// can not happen does nothing, so that deletion is all there is to it.
func Shrink(r Run, o Options) Run {
	o.Trace = false
	want := Play(r, o).Violation
	if want == nil {
		return r
	}
	fails := func(c Run) bool {
		v := Play(c, o).Violation
		return v != nil && v.Property == want.Property
	}
	for again := true; again; {
		var a, b, c bool
		r, a = shrinkSteps(r, fails)
		r, b = shrinkHeader(r, fails)
		r, c = shrinkBytes(r, fails)
		again = a || b || c
	}
	return r
}

func shrinkSteps(r Run, fails func(Run) bool) (Run, bool) {
	smaller := false
	for n := max(1, len(r.Steps)/2); n > 0; n /= 2 {
		for i := 0; i+n <= len(r.Steps); {
			c := Run{r.Header, append(append([]Step(nil), r.Steps[:i]...), r.Steps[i+n:]...)}
			if fails(c) {
				r, smaller = c, true
			} else {
				i += n
			}
		}
	}
	return r, smaller
}

func shrinkHeader(r Run, fails func(Run) bool) (Run, bool) {
	smaller := false
	for i := range headerBytes * 8 {
		c := r
		c.Header[i/8] &^= 1 << (i % 8)
		if c.Header != r.Header && fails(c) {
			r, smaller = c, true
		}
	}
	return r, smaller
}

func shrinkBytes(r Run, fails func(Run) bool) (Run, bool) {
	smaller := false
	for i := range r.Steps {
		for j := 1; j < len(r.Steps[i]); j++ {
			for v := byte(0); v < min(r.Steps[i][j], 4); v++ {
				c := Run{r.Header, append([]Step(nil), r.Steps...)}
				c.Steps[i][j] = v
				if fails(c) {
					r, smaller = c, true
					break
				}
			}
		}
	}
	return r, smaller
}
