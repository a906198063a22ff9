package rulestest

import (
	"math/rand/v2"
	"sort"
)

// Bias makes kinds of steps more likely by a factor, and features certain.
type Bias struct {
	Kinds    map[Kind]int
	Features []Feature
	// Only switches all other features off.
	Only bool
}

// Generator draws runs. It belongs to one goroutine.
type Generator struct {
	seed    uint64
	source  *rand.PCG
	rng     *rand.Rand
	steps   int
	bias    Bias
	weights [NumKinds]int
}

// NewGenerator draws runs of so many steps.
func NewGenerator(seed uint64, steps int, bias Bias) *Generator {
	g := &Generator{source: rand.NewPCG(seed, 0), seed: seed, steps: steps, bias: bias}
	g.rng = rand.New(g.source)
	kinds := kindTable()
	for k := range kinds {
		g.weights[k] = kinds[k].weight
		if f := bias.Kinds[Kind(k)]; f > 0 {
			g.weights[k] *= f
		}
	}
	return g
}

// Run draws the run of a number: the same for the same seed, whoever draws it.
func (g *Generator) Run(number uint64) Run {
	g.source.Seed(g.seed, number)
	return g.Next()
}

// Next draws a run: features and weights are its own (swarm testing), so that
// what is rare beside everything else is frequent in some.
func (g *Generator) Next() Run {
	var r Run
	features := mask(g.rng.Uint32())
	if g.rng.IntN(3) == 0 {
		features &= mask(g.rng.Uint32())
	}
	if g.bias.Only {
		features = 0
	}
	for _, f := range g.bias.Features {
		features |= 1 << f
	}
	r.setFeatures(features & (1<<numFeatures - 1))
	r.Header[4] = byte(g.rng.Uint32())
	var sums [NumKinds]int
	total := 0
	for k, weight := range g.weights {
		m := [...]int{1, 1, 2, 4}[g.rng.IntN(4)]
		if weight > 8 {
			m = 1 + g.rng.IntN(2)
		}
		total += weight * m
		sums[k] = total
	}
	r.Steps = make([]Step, g.steps)
	for i := range r.Steps {
		u := g.rng.Uint64()
		k := sort.SearchInts(sums[:], int(u>>32)%total+1)
		r.Steps[i] = Step{byte(k), byte(u), byte(u >> 8), byte(u >> 16)}
	}
	return r
}
