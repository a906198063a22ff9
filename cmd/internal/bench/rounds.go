package bench

import (
	"context"
	"slices"
	"time"
)

// rounds measures a and b in turn, A B A B, so that what the machine does
// meanwhile falls on both, and returns one value a round for each.
func rounds(ctx context.Context, n int, a, b func(context.Context) (float64, error)) (as, bs []float64, err error) {
	for range n {
		x, err := a(ctx)
		if err != nil {
			return nil, nil, err
		}
		y, err := b(ctx)
		if err != nil {
			return nil, nil, err
		}
		as, bs = append(as, x), append(bs, y)
	}
	return as, bs, nil
}

// rotated measures all sides in each of n rounds and returns, for each side, one
// result a round. Each round begins one side later than the one before, so that
// over a multiple of len(sides) rounds a drift falls on all sides alike.
func rotated[T any](ctx context.Context, n int, sides ...func(context.Context) (T, error)) ([][]T, error) {
	out := make([][]T, len(sides))
	for round := range n {
		for i := range sides {
			side := (round + i) % len(sides)
			x, err := sides[side](ctx)
			if err != nil {
				return nil, err
			}
			out[side] = append(out[side], x)
		}
	}
	return out, nil
}

// median of the values, which are not modified: of an even number the mean of
// the two in the middle; 0 of none.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// quantile is the smallest value that at least the share q of the values does
// not exceed; 0 of none.
func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	i := int(q*float64(len(s)) + 0.999999999)
	return s[min(max(i, 1), len(s))-1]
}

// medianRatio is the median of the rounds' ratios a/b.
func medianRatio(as, bs []float64) float64 {
	ratios := make([]float64, 0, len(as))
	for i := range as {
		if bs[i] != 0 {
			ratios = append(ratios, as[i]/bs[i])
		}
	}
	return median(ratios)
}

// sleep waits, or returns ctx's error when it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
