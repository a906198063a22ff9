package local_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"tidegate/cdc"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/local"
)

// A program that follows the stream itself and asks in memory. It needs the
// NATS that tailers ("tidegate tail") write to.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l, err := local.Open(ctx, local.Options{
		Cluster: "shop",
		NATS:    cdc.Options{URL: "nats://127.0.0.1:4222"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()

	k, err := key.Parse("app.posts/42")
	if err != nil {
		log.Fatal(err)
	}
	// Until Run has caught up with the stream every answer is catching_up.
	var ans router.Answer
	req := router.Request{Keys: []key.Key{k}, MaxStaleness: 5 * time.Second}
	if err := l.Route(ctx, &req, &ans); err != nil {
		log.Fatal(err) // the request is malformed
	}
	switch {
	case ans.Yes:
		fmt.Println("read at", ans.Server, ans.Addr)
	case ans.Otherwise == router.OtherwisePrimary:
		fmt.Println("read where you write:", ans.Reason)
	default:
		fmt.Println("degrade, or ask again after", ans.RetryAfter, ":", ans.Reason)
	}

	stop()
	if err := <-ended; err != nil {
		log.Print(err)
	}
	if err := l.Close(); err != nil {
		log.Print(err)
	}
}
