package main

import (
	"context"
	"fmt"
	"net/url"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/cmd/internal/api"
)

func acceptCommand() *cobra.Command {
	var flags routerFlags
	var server, table, gtids, reason, author string
	var copied, restart bool
	c := &cobra.Command{
		Use:   "accept --server X (--table T | --gtids SET | --copy | --restart) [-c FILE | --addr HOST:PORT]",
		Short: "Vouch for something that keeps a server out of use",
		Long: `Tells a running router that the operator has looked and vouches for a server:
  --table T    T (schema.table) holds the data that the server is suspected to lack
  --gtids SET  these transactions of its own are harmless, or their data is there
  --copy       its data is a copy of a server that is right, also where GTIDs
               that were given twice cannot tell
  --restart    an unclean restart with relaxed durability lost nothing
It is kept with author and reason, holds for the server's present data set only,
and does not cover anything that happens later. Wrong words here are wrong
answers to readers: when in doubt, rebuild the server.`,
		Example: `  tidegate accept --server b --table app.posts --reason "compared by hand"`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if server == "" {
				return usagef("accept: --server is required")
			}
			if err := exactlyOne(cmd, "table", "gtids", "copy", "restart"); err != nil {
				return err
			}
			in := map[string]any{"author": author, "reason": reason}
			switch {
			case table != "":
				if _, _, err := key.ParseTable(table); err != nil && table != "*" {
					return usagef("accept: --table is %q, and schema.table is wanted, or *", table)
				}
				in["table"] = table
			case gtids != "":
				if _, err := gtid.ParseNamed(gtids); err != nil {
					return usagef("accept: --gtids is %q: %w", gtids, err)
				}
				in["gtids"] = gtids
			case copied:
				in["copy"] = true
			case restart:
				in["restart"] = true
			default:
				return usagef("accept: what is accepted is empty")
			}
			client, err := flags.client(cmd)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			before, _ := stateOf(ctx, client, server)
			if err := client.Post(ctx, "/v1/servers/"+url.PathEscape(server)+"/accept", in, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "accepted; %s\n", takenUp(ctx, client, server, before))
			return nil
		},
	}
	flags.add(c)
	c.Flags().StringVar(&server, "server", "", "the server's configured `NAME`; required")
	c.Flags().StringVar(&table, "table", "", "schema.`TABLE` whose taint is accepted; *: the server as a whole")
	c.Flags().StringVar(&gtids, "gtids", "", "`SET` of GTIDs that is accepted")
	c.Flags().BoolVar(&copied, "copy", false, "accept what the server has under GTIDs that were given twice")
	c.Flags().BoolVar(&restart, "restart", false, "accept an unclean restart")
	c.Flags().StringVar(&reason, "reason", "", "`WHY`, for the record")
	c.Flags().StringVar(&author, "author", defaultAuthor(), "`WHO`, for the record")
	return c
}

// takenUpWithin is how long accept waits to see what it brought about.
const takenUpWithin = 5 * time.Second

// takenUp tells what became of a server once an acceptance was given; before is
// its state until then.
func takenUp(ctx context.Context, client *api.Client, server, before string) string {
	for until := time.Now().Add(takenUpWithin); before != "" && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return "not waited for tailers to take it up"
		case <-time.After(100 * time.Millisecond):
		}
		if now, err := stateOf(ctx, client, server); err != nil || now != before {
			before = now
			break
		}
	}
	if before == "" {
		return "tailers take it up within a few seconds (this router does not tell the state of the server)"
	}
	return server + " is now: " + before
}

// stateOf asks for the state of one server.
func stateOf(ctx context.Context, client *api.Client, server string) (string, error) {
	var s status
	if err := client.Get(ctx, "/v1/servers", &s); err != nil {
		return "", err
	}
	for i := range s.Servers {
		if s.Servers[i].Name == server {
			return s.Servers[i].state(), nil
		}
	}
	return "", fmt.Errorf("the router knows no server %s", server)
}

func defaultAuthor() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}
