package serve

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
)

// These answers are for people and their tools: encoding/json does.

type millis time.Duration

// MarshalJSON writes milliseconds with three decimals, null for what is not
// known.
func (m millis) MarshalJSON() ([]byte, error) { return appendMillis(nil, time.Duration(m)), nil }

type count int64

// MarshalJSON writes null for what is not known.
func (c count) MarshalJSON() ([]byte, error) { return appendCount(nil, int64(c)), nil }

type text string

// MarshalJSON writes null for an empty text.
func (t text) MarshalJSON() ([]byte, error) { return appendText(nil, string(t)), nil }

type serverJSON struct {
	Name           string   `json:"name"`
	Role           string   `json:"role"`
	Primary        bool     `json:"primary"`
	Addr           text     `json:"addr"`
	UUID           text     `json:"server_uuid"`
	Epoch          text     `json:"epoch"`
	Eligible       bool     `json:"eligible"`
	Reason         text     `json:"reason"`
	Detail         text     `json:"detail"`
	StalenessMS    millis   `json:"staleness_ms"`
	LeaseAgeMS     millis   `json:"lease_age_ms"`
	BehindTxns     count    `json:"behind_txns"`
	BehindTransfer count    `json:"behind_transfer_txns"`
	Weight         uint32   `json:"weight"`
	LastSecond     uint64   `json:"decisions_last_second"`
	Version        text     `json:"server_version"`
	Follow         text     `json:"follow"`
	Replication    text     `json:"replication_error"`
	Tainted        []string `json:"tainted"`
	Filtered       []string `json:"filtered"`
	Excluded       []string `json:"excluded"`
	Errant         text     `json:"errant"`
	Confirmed      *string  `json:"confirmed,omitempty"`
	Received       *string  `json:"received,omitempty"`
}

type reportJSON struct {
	Ready          bool         `json:"ready"`
	Reason         text         `json:"reason"`
	Detail         text         `json:"detail"`
	Primary        text         `json:"primary"`
	WatermarkAgeMS millis       `json:"watermark_age_ms"`
	BlindMS        millis       `json:"blind_ms"`
	OldestGTID     text         `json:"oldest_gtid"`
	OldestCommit   text         `json:"oldest_committed_at"`
	Servers        []serverJSON `json:"servers"`
	Delivered      *string      `json:"delivered,omitempty"`
	Horizon        *string      `json:"horizon,omitempty"`
	Lost           *string      `json:"lost,omitempty"`
}

func whole(verbose bool, s gtid.Set) *string {
	if !verbose {
		return nil
	}
	t := s.OneLine()
	return &t
}

func limited(s gtid.Set) text { return text(s.Limit(router.MaxNeedIntervals).OneLine()) }

func (s *Server) servers(w http.ResponseWriter, r *http.Request) *wireError {
	a := takeAsk(kindEligible)
	defer a.put()
	if err := a.onlyVerbose(r.URL.RawQuery); err != nil {
		return err
	}
	rep := s.o.Router.Report()
	out := reportJSON{
		Ready: rep.Ready, Reason: text(rep.Reason.String()), Detail: text(rep.Detail), Primary: text(rep.Primary),
		WatermarkAgeMS: millis(rep.WatermarkAge), BlindMS: millis(rep.BlindFor),
		Delivered: whole(a.req.Verbose, rep.Delivered), Horizon: whole(a.req.Verbose, rep.Horizon), Lost: whole(a.req.Verbose, rep.Lost),
		Servers: make([]serverJSON, 0, len(rep.Servers)),
	}
	if s.o.Oldest != nil {
		if g, at := s.o.Oldest(); !g.IsZero() {
			out.OldestGTID, out.OldestCommit = text(g.String()), text(at.UTC().Format(time.RFC3339Nano))
		}
	}
	for i := range rep.Servers {
		out.Servers = append(out.Servers, serverView(&rep.Servers[i], a.req.Verbose))
	}
	return writeView(w, http.StatusOK, out)
}

func serverView(v *router.ServerReport, verbose bool) serverJSON {
	j := serverJSON{
		Name: v.Name, Role: roleName(v.Role), Primary: v.Primary, Addr: text(v.Addr),
		Eligible: v.Eligible, Reason: text(v.Reason.String()), Detail: text(v.Detail),
		StalenessMS: millis(v.Staleness), LeaseAgeMS: millis(v.LeaseAge),
		BehindTxns: count(v.BehindTxns), BehindTransfer: count(v.BehindTransfer),
		Weight: v.Weight, LastSecond: v.LastSecond,
		Tainted: []string{}, Filtered: []string{}, Excluded: []string{},
	}
	st := v.State
	if st == nil {
		return j
	}
	j.UUID, j.Epoch = text(st.UUID.String()), text(strconv.FormatUint(uint64(st.Epoch), 10))
	j.Version, j.Follow, j.Replication = text(st.ServerVersion), text(st.Follow), text(st.ReplicationErr)
	j.Filtered, j.Excluded = append(j.Filtered, st.Filtered...), append(j.Excluded, st.Excluded...)
	j.Errant = limited(st.Errant)
	for _, t := range st.Taints {
		name := t.Name
		if t.All {
			name = "*"
		}
		j.Tainted = append(j.Tainted, name)
	}
	j.Confirmed, j.Received = whole(verbose, v.Confirmed), whole(verbose, st.Received)
	return j
}

// onlyVerbose takes a query that may hold verbose and nothing else.
func (a *ask) onlyVerbose(raw string) *wireError {
	if err := a.query(raw); err != nil {
		return err
	}
	if a.given&gaveStaleness != 0 {
		return bad(CodeUnknownField, "max_staleness_ms", -1, "there is no such field here")
	}
	return nil
}

type keyServerJSON struct {
	Server string `json:"server"`
	Shown  bool   `json:"shown"`
	Reason text   `json:"reason"`
	Detail text   `json:"detail"`
}

type keyJSON struct {
	Key        string          `json:"key"`
	Known      bool            `json:"known"`
	Reason     text            `json:"reason"` // why nothing is known
	OneRow     bool            `json:"one_row"`
	Definition text            `json:"definition"`
	Timeline   count           `json:"timeline"` // of the newest write; null: none recorded
	Ordinal    count           `json:"ordinal"`
	Wide       bool            `json:"wide"`
	GTID       text            `json:"gtid"`
	Servers    []keyServerJSON `json:"servers"`
}

func (s *Server) keys(w http.ResponseWriter, r *http.Request) *wireError {
	a := takeAsk(kindServe)
	defer a.put()
	if err := a.query(r.URL.RawQuery); err != nil {
		return err
	}
	if len(a.keys) != 1 || a.given != 0 {
		return bad(CodeBadField, "key", -1, "exactly one key is asked about, and nothing else")
	}
	k := a.keys[0]
	k.Values = append([]key.TextValue(nil), k.Values...)
	rep, why, err := s.o.Router.Key(k)
	if err != nil {
		return refused(err, "key", func(int) string { return a.printed[0] })
	}
	out := keyJSON{
		Key: k.String(), Known: why == router.ReasonNone, Reason: text(why.String()),
		Timeline: router.Unknown, Ordinal: router.Unknown, Servers: []keyServerJSON{},
	}
	if out.Known {
		out.OneRow, out.Wide, out.GTID = rep.OneRow, rep.Wide, text(rep.GTID.String())
		out.Definition = text(strconv.FormatUint(uint64(rep.Definition), 16))
		if rep.Newest != 0 {
			out.Timeline, out.Ordinal = count(rep.Newest.Timeline()), count(rep.Newest.Ordinal())
		}
		for _, v := range rep.Servers {
			out.Servers = append(out.Servers, keyServerJSON{v.Server, v.Shown, text(v.Reason.String()), text(v.Detail)})
		}
	}
	return writeView(w, http.StatusOK, out)
}

type eligibleJSON struct {
	Eligible    bool   `json:"eligible"`
	Reason      string `json:"reason"`
	Detail      text   `json:"detail"`
	Server      string `json:"server"`
	Role        string `json:"role"`
	StalenessMS millis `json:"staleness_ms"`
}

// eligible is a load balancer's health check of one server: 200 or 503. It asks
// at level eventual, or bounded when a bound is given, and moves no read.
func (s *Server) eligible(w http.ResponseWriter, r *http.Request, name string) *wireError {
	a := takeAsk(kindEligible)
	defer a.put()
	if err := a.query(r.URL.RawQuery); err != nil {
		return err
	}
	a.req.Server, a.req.Advisory, a.req.Level = name, true, router.LevelEventual
	if a.req.HasBound {
		a.req.Level = router.LevelBounded
	}
	if err := s.decide(r.Context(), a); err != nil {
		return err
	}
	ans := &a.ans
	if ans.Reason == router.ReasonUnknownServer {
		return fail(http.StatusNotFound, CodeNotFound, "server", "there is no server of this name")
	}
	status := http.StatusOK
	if !ans.Yes || ans.Stale {
		status = http.StatusServiceUnavailable
	}
	return writeView(w, status, eligibleJSON{
		Eligible: status == http.StatusOK, Reason: ans.Reason.String(), Detail: text(ans.Detail),
		Server: name, Role: roleName(ans.Role), StalenessMS: millis(ans.Staleness),
	})
}

// health tells that the process answers. It needs no credential.
func (s *Server) health(w http.ResponseWriter, r *http.Request) *wireError {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return s.wrongMethod(w, "GET")
	}
	writeJSON(w, http.StatusOK, []byte(`{"ok":true}`))
	return nil
}

// ready tells whether the router can prove anything. It needs no credential.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) *wireError {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return s.wrongMethod(w, "GET")
	}
	ok, why, detail := s.o.Router.Ready()
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	return writeView(w, status, struct {
		Ready  bool `json:"ready"`
		Reason text `json:"reason"`
		Detail text `json:"detail"`
	}{ok, text(why.String()), text(detail)})
}

func writeView(w http.ResponseWriter, status int, v any) *wireError {
	b, err := json.Marshal(v)
	if err != nil {
		return fail(http.StatusInternalServerError, CodeUnavailable, "", "encode answer: "+err.Error())
	}
	writeJSON(w, status, b)
	return nil
}
