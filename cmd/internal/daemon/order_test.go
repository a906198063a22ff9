package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

// TestRunInOrder: a stage is told to end when the one before has ended, and the
// failure of any part ends all in the same order.
func TestRunInOrder(t *testing.T) {
	broken := errors.New("broken")
	for _, fails := range []string{"", "listening", "answering", "watching"} {
		t.Run("fails "+fails, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			var ended []string
			var begun sync.WaitGroup
			stage := func(name string) []part {
				begun.Add(2)
				run := func(ctx context.Context) error {
					begun.Done()
					begun.Wait()
					if name == fails {
						return broken
					}
					<-ctx.Done()
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, name)
					return nil
				}
				return []part{run, run}
			}
			stages := [][]part{stage("listening"), nil, stage("answering"), stage("watching")}
			if fails == "" {
				go func() {
					begun.Wait()
					cancel()
				}()
			}
			err := runInOrder(ctx, stages...)
			if (fails == "") != (err == nil) || fails != "" && !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
			want := []string{"listening", "listening", "answering", "answering", "watching", "watching"}
			want = slices.DeleteFunc(want, func(name string) bool { return name == fails })
			if !slices.Equal(ended, want) {
				t.Errorf("ended in the order %v, want %v", ended, want)
			}
		})
	}
}
