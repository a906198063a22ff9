package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Figure is one measured number. Pointers are nil where there is none.
type Figure struct {
	Name   string  `json:"name"` // row, a dot, and what of it
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Better string  `json:"better"` // lower or higher
	// Baseline is what Value is held against, of the same unit and the same
	// run. Ratio is the median over the rounds of value/baseline, which is not
	// the quotient of the two medians printed here.
	Baseline *float64 `json:"baseline"`
	Ratio    *float64 `json:"ratio"`
	// Must and Aim bound Ratio where there is one, and Value otherwise.
	Must      *float64 `json:"must"`
	Aim       *float64 `json:"aim"`
	MeetsMust *bool    `json:"meets_must"`
	MeetsAim  *bool    `json:"meets_aim"`
}

// The two values of Figure.Better.
const (
	lower  = "lower"
	higher = "higher"
)

// figure starts one without a baseline and bounds.
func figure(name string, value float64, unit, better string) Figure {
	return Figure{Name: name, Value: value, Unit: unit, Better: better}
}

// against sets the baseline.
func (f Figure) against(baseline, ratio float64) Figure {
	f.Baseline, f.Ratio = &baseline, &ratio
	return f
}

// must sets what is required, and judges; it comes after against.
func (f Figure) must(limit float64) Figure {
	f.Must, f.MeetsMust = &limit, f.meets(limit)
	return f
}

// aim sets what would be good, and judges; it comes after against.
func (f Figure) aim(limit float64) Figure {
	f.Aim, f.MeetsAim = &limit, f.meets(limit)
	return f
}

// meets holds the ratio, where there is one, against a limit.
func (f Figure) meets(limit float64) *bool {
	x := f.Value
	if f.Ratio != nil {
		x = *f.Ratio
	}
	ok := x <= limit
	if f.Better == higher {
		ok = x >= limit
	}
	return &ok
}

// WriteJSON prints the figures as one array, one object a line.
func WriteJSON(w io.Writer, figures []Figure) error {
	sep := "["
	for i := range figures {
		b, err := json.Marshal(&figures[i])
		if err != nil {
			return fmt.Errorf("print figure %s: %w", figures[i].Name, err)
		}
		if _, err := fmt.Fprintf(w, "%s%s", sep, b); err != nil {
			return err
		}
		sep = ",\n "
	}
	if len(figures) == 0 {
		sep = "[]\n"
	} else {
		sep = "]\n"
	}
	_, err := io.WriteString(w, sep)
	return err
}

// WriteTable prints the figures for people.
func WriteTable(w io.Writer, figures []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tvalue\tunit\tbaseline\tratio\tmust\taim\t")
	for i := range figures {
		f := &figures[i]
		verdict := ""
		switch {
		case f.MeetsMust == nil:
		case !*f.MeetsMust:
			verdict = "MISSES MUST"
		case f.MeetsAim == nil || !*f.MeetsAim:
			verdict = "meets must"
		default:
			verdict = "meets aim"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Name, number(&f.Value), f.Unit,
			number(f.Baseline), number(f.Ratio), number(f.Must), number(f.Aim), verdict)
	}
	return t.Flush()
}

// number prints four significant digits, and no exponent.
func number(x *float64) string {
	switch {
	case x == nil:
		return "-"
	case *x >= 1000 || *x <= -1000:
		return strconv.FormatFloat(*x, 'f', 0, 64)
	}
	return strconv.FormatFloat(*x, 'g', 4, 64)
}
