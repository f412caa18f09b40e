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

// A tenant's schema waits for at most one schema of another tenant, however many schemas the other tenant sends. The
// number of concurrent compilations is limited, and cancelling a request does not affect other requests.
func TestTenantsTakeTurnsAtCompiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &compilers{free: 1, by: map[string]int{}}
		var mu sync.Mutex
		var order []string
		running := 0
		next := make(chan struct{})
		compile := func(tenant string) func() {
			return func() {
				mu.Lock()
				order = append(order, tenant)
				running++
				if running > 1 {
					t.Error("two compilations ran at the same time, want one")
				}
				mu.Unlock()
				<-next
				mu.Lock()
				running--
				mu.Unlock()
			}
		}
		var all sync.WaitGroup
		send := func(ctx context.Context, tenant string) {
			all.Go(func() {
				if err := c.run(ctx, tenant, compile(tenant)); err != nil && !errors.Is(err, context.Canceled) {
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
			t.Errorf("the compilations ran in the order %v", order)
		}
		if got := fmt.Sprint(len(order), c.free, len(c.queue)); got != "18 1 0" {
			t.Errorf("compiled, free and waiting are %s", got)
		}
	})
}

// The compiled schemas of running requests use a limited amount of memory, and one tenant may use half of it.
func TestCompiledSchemasAreBoundedInBytes(t *testing.T) {
	c := newCompilers()
	c.most = 1000
	var releases []func()
	hold := func(tenant string, bytes int, want bool) {
		t.Helper()
		release, err := c.hold(tenant, bytes)
		if got := err == nil; got != want || !want && !errors.Is(err, ErrSchemaMemory) {
			t.Errorf("%d bytes of %s: %v", bytes, tenant, err)
		}
		if err == nil {
			releases = append(releases, release)
		}
	}
	hold("a", 501, false)
	hold("a", 300, true)
	hold("a", 200, true)
	hold("a", 1, false)
	hold("b", 450, true)
	hold("c", 60, false)
	hold("c", 50, true)
	releases[0]()
	hold("c", 100, true)
	hold("a", 200, true)
	for _, release := range releases[1:] {
		release()
	}
	if c.held != 0 || len(c.by) != 0 {
		t.Errorf("%d bytes of %d tenants are left", c.held, len(c.by))
	}
}

// A request is refused if there is no memory for its schema. The memory of a schema is released when its request ends,
// in any way.
func TestSchemasAreHeldUntilRequestsEnd(t *testing.T) {
	e := start(t, Config{MaxRunning: 1, MaxQueue: 2})
	ask := func(tenant string, tokens int) (*Stream, error) {
		return e.Stream(t.Context(), Request{Prompt: "a", Tenant: tenant, MaxTokens: tokens, MinTokens: 1,
			Format: Format{Kind: FormatSchema, Schema: []byte(`{"type":"string","minLength":8000}`)}})
	}
	first, err := ask("a", 8000) // this request runs until it is closed below
	if err != nil {
		t.Fatal(err)
	}
	e.compilers.mu.Lock()
	if e.compilers.held == 0 {
		t.Error("the compiled schema of a running request is not counted")
	}
	e.compilers.most = 3 * e.compilers.held
	e.compilers.mu.Unlock()
	if _, err := ask("a", 100); !errors.Is(err, ErrSchemaMemory) {
		t.Errorf("beyond half of the memory: %v", err)
	}
	other, err := ask("b", 100)
	if err != nil {
		t.Fatalf("another sender is refused: %v", err)
	}
	if _, err := ask("c", 1<<20); err == nil || errors.Is(err, ErrSchemaMemory) {
		t.Errorf("a request that the core refuses: %v", err)
	}
	other.Close()
	first.Close()
	for range first.All() {
	}
	for range other.All() {
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c := e.compilers; c.held != 0 || len(c.by) != 0 {
		t.Errorf("%d bytes of %d tenants are left", c.held, len(c.by))
	}
}
