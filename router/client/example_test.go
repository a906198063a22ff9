package client_test

import (
	"context"
	"fmt"
	"log"

	"tidegate/router/client"
)

// Where to read a row that may just have been written.
func Example() {
	c, err := client.New(client.Options{URLs: []string{"http://127.0.0.1:7400"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	d, err := c.Route(context.Background(), client.Query{Keys: []string{"app.posts/42"}})
	if err != nil {
		log.Fatal(err) // the question is malformed; a dead router is no error
	}
	switch d.Where {
	case client.Target:
		fmt.Println("read at", d.Target, d.Addr)
	case client.Primary:
		fmt.Println("read where you write:", d.Reason)
	case client.Anywhere:
		fmt.Println("read any replica; it may be stale:", d.Reason)
	case client.Nowhere:
		fmt.Println("degrade, or ask again after", d.RetryAfter, ":", d.Reason)
	}
}
