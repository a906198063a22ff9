package rulestest

import "testing"

// maxFuzzSteps keeps one run of the fuzzer short.
const maxFuzzSteps = 400

// FuzzRules plays any bytes as a run.
func FuzzRules(f *testing.F) {
	g := NewGenerator(1, 80, Bias{})
	for range 8 {
		f.Add(g.Next().Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := ParseRun(data[:min(len(data), headerBytes+4*maxFuzzSteps)])
		o := Options{Heal: true}
		if res := Play(r, o); res.Violation != nil {
			t.Fatalf("\n%s", Report(Shrink(r, o), o))
		}
	})
}
