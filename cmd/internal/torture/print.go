package torture

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"tidegate/testenv/checker"
)

// PrintJSON prints the report as one line.
func PrintJSON(w io.Writer, rep *checker.Report) error { return json.NewEncoder(w).Encode(rep) }

// PrintTable prints the report for people.
func PrintTable(w io.Writer, rep *checker.Report) error {
	fmt.Fprintf(w, "router %s, %.0f s, seed %d, MySQL %s\n", rep.Router, rep.Seconds, rep.Seed, rep.MySQL)
	fmt.Fprintf(w, "%d reads after a yes (%d decisions, %d without a server, %d reads failed, %d met another server), %d writes (%d of unknown outcome), %d changes of primary\n",
		rep.Reads, rep.Decisions, rep.Unanswered, rep.Failed, rep.Moved, rep.Writes, rep.UnknownWrites, rep.Forks)
	fmt.Fprintf(w, "replica share %.4f, oracle %.4f, ratio %.4f\n", rep.ReplicaShare, rep.OracleShare, rep.Ratio)
	if len(rep.Faults) > 0 {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "fault\tstruck\treads inside\tshare inside\toracle inside\tshare after\toracle after")
		for _, f := range rep.Faults {
			fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", f.Name, f.Struck, f.Reads, share(f.ShareInside), share(f.OracleInside), share(f.ShareAfter), share(f.OracleAfter))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(rep.Violations)) {
		parts = append(parts, fmt.Sprintf("%s %d", class, rep.Violations[class]))
	}
	fmt.Fprintf(w, "violations: %s\n", strings.Join(parts, ", "))
	if rep.History != "" {
		fmt.Fprintf(w, "history: %s\n", rep.History)
	}
	return nil
}

// PrintFailure says why a run is no proof: the first violations, faults that
// struck nothing or went wrong.
func PrintFailure(w io.Writer, rep *checker.Report) {
	for _, v := range rep.Details {
		fmt.Fprintf(w, "violation %s at %.3f s: %s (answer: %s)\n", v.Class, float64(v.Read.End)/1e9, v.Text, cmp.Or(v.Read.Reason, "no reason"))
	}
	if n := rep.NumViolations(); n > len(rep.Details) {
		fmt.Fprintf(w, "and %d more\n", n-len(rep.Details))
	}
	for _, name := range rep.Idle() {
		fmt.Fprintf(w, "fault %s struck no read: the run proves nothing about it\n", name)
	}
	for _, f := range rep.Faults {
		for _, text := range f.Errors {
			fmt.Fprintf(w, "fault %s went wrong: %s\n", f.Name, text)
		}
	}
	if rep.Reads == 0 {
		fmt.Fprintln(w, "nothing was read")
	}
	if !rep.Whole {
		fmt.Fprintln(w, "the history was cut off")
	}
}

func share(s *float64) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *s)
}
