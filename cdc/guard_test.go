package cdc_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"tidegate/cdc"
)

// TestStreamsGone: a NATS that lost its store, or from which somebody deleted what
// Tidegate made there, ends who writes: only Open makes it again. Who only follows
// waits for that, and ends when its secret is no more the stream's.
func TestStreamsGone(t *testing.T) {
	for name, harm := range map[string]func(ctx context.Context, c *cdc.Conn) error{
		"WRITES": func(ctx context.Context, c *cdc.Conn) error { return c.JetStream().DeleteStream(ctx, c.WritesStream()) },
		"STATE":  func(ctx context.Context, c *cdc.Conn) error { return c.JetStream().DeleteStream(ctx, c.StateStream()) },
		"bucket": func(ctx context.Context, c *cdc.Conn) error { return c.JetStream().DeleteKeyValue(ctx, c.Bucket()) },
		"secret": func(ctx context.Context, c *cdc.Conn) error { return c.DeleteSecret(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natsServer(t, nil)
			writer := open(t, external(t, s.ClientURL()))
			o := external(t, s.ClientURL())
			o.Follow = true
			reader := open(t, o)
			tail, serve := start(t, writer.Guard), start(t, reader.Guard)
			if err := harm(t.Context(), writer); err != nil {
				t.Fatal(err)
			}
			if err := tail.wait(t); !errors.Is(err, cdc.ErrStreamsGone) || !strings.Contains(err.Error(), "its store was lost") {
				t.Errorf("the writer's guard ended with %v, want %v", err, cdc.ErrStreamsGone)
			}
			select {
			case <-serve.done:
				t.Errorf("the reader's guard ended with %v before anybody made a stream", serve.err)
			default:
			}
			again := open(t, external(t, s.ClientURL()))
			if name == "WRITES" || name == "STATE" {
				if again.Secret() != reader.Secret() {
					t.Error("another secret, though the bucket was there")
				}
				if err := serve.stop(); err != nil {
					t.Errorf("the reader's guard ended with %v", err)
				}
				return
			}
			if err := serve.wait(t); !errors.Is(err, cdc.ErrSecret) {
				t.Errorf("the reader's guard ended with %v, want %v", err, cdc.ErrSecret)
			}
			// A writer that has missed it all must not go on with a secret that no
			// reader can come to know.
			if err := start(t, writer.Guard).wait(t); !errors.Is(err, cdc.ErrSecret) {
				t.Errorf("the writer's guard ended with %v, want %v", err, cdc.ErrSecret)
			}
		})
	}
}

// TestOpenAgainChangesNothing: the limits that NATS keeps are those asked for.
func TestOpenAgainChangesNothing(t *testing.T) {
	s := natsServer(t, nil)
	open(t, external(t, s.ClientURL()))
	o := external(t, s.ClientURL())
	var log strings.Builder
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	open(t, o)
	if strings.Contains(log.String(), "changing limits") {
		t.Errorf("the same limits are changed:\n%s", log.String())
	}
}
