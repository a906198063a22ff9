package cdc

import "context"

// Reconnect cuts the connection and lets it come back.
func (c *Conn) Reconnect() error { return c.nc.ForceReconnect() }

// AfterLast runs fn once, behind the writer's first look at the stream's end.
func (o *WriterOptions) AfterLast(fn func()) {
	o.publisher = func(p publisher) publisher { return &lookingPublisher{publisher: p, fn: fn} }
}

type lookingPublisher struct {
	publisher
	fn func()
}

func (p *lookingPublisher) last(ctx context.Context) (tip, error) {
	t, err := p.publisher.last(ctx)
	if fn := p.fn; fn != nil && err == nil {
		p.fn = nil
		fn()
	}
	return t, err
}

// DeliverCold gives a follower that has to start anew its first message.
func DeliverCold(c *Conn, s Sink, data []byte) error {
	f := NewFollower(c, FollowerOptions{Sink: s})
	f.cold = true
	d := f.decodeWrites(raw{data: data})
	d.seq = 9
	return f.take(d)
}

// SecretPrint is what messages name of the secret.
func (c *Conn) SecretPrint() [8]byte { return c.secret.Print() }
