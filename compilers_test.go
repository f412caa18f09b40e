package sparrow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// However many schemas one party sends, another's is compiled after at most one of them; no more run at a time than
// may, and who leaves takes nothing with it.
func TestPartiesTakeTurnsAtCompiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &compilers{free: 1}
		var mu sync.Mutex
		var order []string
		running := 0
		next := make(chan struct{})
		compile := func(party string) func() {
			return func() {
				mu.Lock()
				order = append(order, party)
				running++
				if running > 1 {
					t.Error("two compile at a time")
				}
				mu.Unlock()
				<-next
				mu.Lock()
				running--
				mu.Unlock()
			}
		}
		var all sync.WaitGroup
		send := func(ctx context.Context, party string) {
			all.Go(func() {
				if err := c.run(ctx, party, compile(party)); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for range 16 {
			send(t.Context(), "flood")
		}
		gone, leave := context.WithCancel(t.Context())
		send(gone, "gone")
		send(t.Context(), "late")
		send(t.Context(), "late")
		leave()
		synctest.Wait()
		for range 18 {
			next <- struct{}{}
			synctest.Wait()
		}
		all.Wait()
		if want := []string{"flood", "flood", "late", "flood", "late"}; !slices.Equal(order[:5], want) {
			t.Errorf("the order is %v", order)
		}
		if got := fmt.Sprint(len(order), c.free, len(c.queue)); got != "18 1 0" {
			t.Errorf("compiled, free and waiting are %s", got)
		}
	})
}
