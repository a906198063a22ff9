package testenv_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// connect connects to NATS and returns JetStream.
func connect(t *testing.T, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.Timeout(testenvtest.HangTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))...)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return js
}

// publish sends until it is acknowledged.
func publish(t *testing.T, js jetstream.JetStream, subject, text string) {
	t.Helper()
	testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := js.Publish(ctx, subject, []byte(text)); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}

func TestNATS(t *testing.T) {
	t.Parallel()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	n := testenvtest.NATS(t, testenv.NATSOptions{User: "u", Password: "p@ss/word", TLS: true, VerifyClients: true, SyncAlways: true})
	config, err := n.ClientTLS()
	must(t, err)
	js := connect(t, n.URL(), nats.Secure(config))
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	must(t, err)
	for i, end := range []func() error{n.Kill, func() error { return n.Stop(ctx) }} {
		publish(t, js, "s", "x")
		addr := n.Addr()
		must(t, end())
		must(t, n.Start(ctx))
		must(t, n.WaitHealthy(ctx))
		if n.Addr() != addr {
			t.Errorf("moved to %s", n.Addr())
		}
		testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			info, err := stream.Info(short)
			if err != nil {
				return false, err.Error()
			}
			return info.State.Msgs >= uint64(i+1), "messages were lost"
		})
	}
	if _, err := nats.Connect(strings.Replace(n.URL(), "u:", "other:", 1), nats.Secure(config)); err == nil {
		t.Error("another user is let in")
	}
	config.Certificates = nil
	if _, err := nats.Connect(n.URL(), nats.Secure(config)); err == nil {
		t.Error("a client without a certificate is let in")
	}
	if _, err := testenv.StartNATS(ctx, testenv.NATSOptions{User: "u"}); err == nil {
		t.Error("a user without a password accepted")
	}
	if _, err := testenv.StartNATS(ctx, testenv.NATSOptions{Config: "nonsense {{{"}); err == nil {
		t.Error("a broken configuration accepted")
	}
}

func TestNATSCluster(t *testing.T) {
	t.Parallel()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	c := testenvtest.NATSCluster(t, 0, testenv.NATSOptions{})
	js := connect(t, c.URL())
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	must(t, err)
	publish(t, js, "s", "1")
	leader := stream.CachedInfo().Cluster.Leader
	for _, n := range c.Nodes() {
		if n.Name() != leader {
			continue
		}
		must(t, n.Kill())
		publish(t, js, "s", "2") // the other two carry on
		must(t, n.Start(ctx))
		must(t, n.WaitHealthy(ctx))
	}
	info, err := stream.Info(ctx)
	if err != nil || info.State.Msgs < 2 || len(info.Cluster.Replicas) != 2 {
		t.Errorf("stream %+v, %v", info, err)
	}
	p := startProxy(t, c.Nodes()[0].Addr())
	publish(t, connect(t, c.Nodes()[0].URLVia(p.Addr()), nats.DontRandomize()), "s", "3")
	if to, _ := p.Bytes(); to == 0 {
		t.Error("nothing went through the proxy")
	}
}
