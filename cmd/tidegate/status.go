package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/api"
)

// routerFlags say which router a command asks.
type routerFlags struct{ file, addr, token, ca, cert, key string }

func (f *routerFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.file, "config", "c", "tidegate.yaml", "configuration `FILE`: the router is asked at its listen.http")
	c.Flags().StringVar(&f.addr, "addr", "", "`HOST:PORT` or URL of a router, instead of the configuration's")
	// Not the flag's default value: --help prints those.
	c.Flags().StringVar(&f.token, "token", "", "bearer `TOKEN`; default: $TIDEGATE_TOKEN, which other users do not see")
	c.Flags().StringVar(&f.ca, "ca", "", "PEM `FILE` of the authorities whose certificate of the router is trusted; default: the system's")
	c.Flags().StringVar(&f.cert, "cert", "", "PEM `FILE` of a client certificate, in place of a token; default: none")
	c.Flags().StringVar(&f.key, "key", "", "PEM `FILE` of the key of --cert, required with it")
}

func (f *routerFlags) client(c *cobra.Command) (*api.Client, error) {
	if c.Flags().Changed("config") && c.Flags().Changed("addr") {
		return nil, usagef("%s: --config and --addr each name a router: give one of them", c.CommandPath())
	}
	addr, token := f.addr, f.token
	if token == "" {
		token = os.Getenv("TIDEGATE_TOKEN")
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("%s: --cert and --key go together", c.CommandPath())
	}
	if addr == "" {
		cfg, err := loadConfig(f.file)
		if err != nil {
			return nil, err
		}
		if addr = cfg.Listen.HTTP; addr == "off" {
			return nil, usagef("%s has listen.http off: name a router by --addr", f.file)
		}
		scheme := "http://"
		if cfg.Listen.TLS.CertFile != "" {
			scheme = "https://"
		}
		addr = scheme + addr
	}
	client, err := api.New(api.Options{Addr: addr, Token: token, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key})
	return client, usage(err)
}

// statusServer is what status shows of GET /v1/servers.
type statusServer struct {
	Name        string   `json:"name"`
	Role        string   `json:"role"`
	Primary     bool     `json:"primary"`
	Epoch       *string  `json:"epoch"`
	Eligible    bool     `json:"eligible"`
	Reason      *string  `json:"reason"`
	Detail      *string  `json:"detail"`
	StalenessMS *float64 `json:"staleness_ms"`
	Behind      *int64   `json:"behind_txns"`
	Transfer    *int64   `json:"behind_transfer_txns"`
	Confirmed   *string  `json:"confirmed"`
	Tainted     []string `json:"tainted"`
	Replication *string  `json:"replication"`
}

type status struct {
	Ready          bool           `json:"ready"`
	Reason         *string        `json:"reason"`
	Detail         *string        `json:"detail"`
	Primary        *string        `json:"primary"`
	WatermarkAgeMS *float64       `json:"watermark_age_ms"`
	OldestGTID     *string        `json:"oldest_gtid"`
	OldestCommit   *string        `json:"oldest_committed_at"`
	Servers        []statusServer `json:"servers"`
}

func statusCommand() *cobra.Command {
	var flags routerFlags
	var asJSON bool
	var watch time.Duration
	c := &cobra.Command{
		Use:   "status [-c FILE | --addr HOST:PORT]",
		Short: "Show what a running router knows of each server, and why",
		Long: `Asks a running router (run or serve) and prints a line for each server: its role
and epoch, how many transactions it is not proven to show (BEHIND) and how many
of these it has not even received (TRANSFER), how stale it is, whether it may be
read at all (STATE: eligible, or why not), and the transactions that it is proven
to show (CONFIRMED). Eligible does not mean that it shows a key: ask /v1/serve.`,
		Example: `  tidegate status -c tidegate.yaml --watch 1s
  tidegate status --addr 127.0.0.1:7400 --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch < 0 {
				return usagef("%s: --watch is %v, it must not be negative", cmd.CommandPath(), watch)
			}
			client, err := flags.client(cmd)
			if err != nil {
				return err
			}
			for {
				var raw json.RawMessage
				if err := client.Get(cmd.Context(), "/v1/servers?verbose=1", &raw); err != nil {
					return err
				}
				if asJSON {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", raw)
				} else if err := printStatus(cmd.OutOrStdout(), raw); err != nil {
					return err
				}
				if watch <= 0 {
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(watch):
				}
			}
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print the router's own JSON (with --watch: each time a line)")
	c.Flags().DurationVar(&watch, "watch", 0, "print again after each `DURATION`, e.g. 1s; 0: print once")
	return c
}

func printStatus(w io.Writer, raw json.RawMessage) error {
	var s status
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the router's answer is not understood: %w", err)
	}
	state := "ready"
	if !s.Ready {
		state = "not ready: " + orDash(s.Reason)
		if s.Detail != nil && *s.Detail != "" {
			state += ": " + *s.Detail
		}
	}
	fmt.Fprintf(w, "router: %s; primary: %s; watermark age: %s; oldest in the stream: %s, committed %s\n",
		state, orDash(s.Primary), ms(s.WatermarkAgeMS), orDash(s.OldestGTID), orDash(s.OldestCommit))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tROLE\tEPOCH\tBEHIND\tTRANSFER\tSTALENESS\tCONFIRMED\tSTATE")
	for _, v := range s.Servers {
		role := v.Role
		if v.Primary {
			role += " (announced)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, role, orDash(v.Epoch), whole(v.Behind), whole(v.Transfer), ms(v.StalenessMS), short(orDash(v.Confirmed)), v.state())
	}
	return t.Flush()
}

// state says whether the server may be read at all, or why not.
func (v *statusServer) state() string {
	why := "eligible"
	if !v.Eligible {
		why = orDash(v.Reason)
		if v.Detail != nil {
			why += ": " + *v.Detail
		}
	}
	for _, table := range v.Tainted {
		if table == "" {
			table = "a table that is not named yet"
		}
		why += "; tainted: " + table
	}
	if v.Replication != nil && *v.Replication != "" {
		why += "; replication: " + *v.Replication
	}
	return why
}

func orDash(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return *s
}

func ms(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f ms", *v)
}

func whole(v *int64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

// short keeps a table readable; --json has all.
func short(s string) string {
	const most = 96
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
