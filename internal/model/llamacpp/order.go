package llamacpp

import (
	"context"
	"io"
	"runtime"
	"sync"
)

// finished is a part that a worker has computed.
type finished struct {
	data []byte
	err  error
}

// inOrder computes parts 0 to n-1 on all processors and writes them in order. At most a few parts for each processor
// are in memory. inOrder returns when all goroutines have ended.
func inOrder(ctx context.Context, to io.Writer, n int, part func(i int) ([]byte, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	workers := min(n, runtime.GOMAXPROCS(0))
	type job struct {
		part int
		done chan<- finished
	}
	jobs, results := make(chan job), make(chan (<-chan finished), 2*workers)
	all.Go(func() {
		defer close(jobs)
		defer close(results)
		for i := range n {
			done := make(chan finished, 1)
			select {
			case results <- done:
			case <-ctx.Done():
				return
			}
			select {
			case jobs <- job{part: i, done: done}:
			case <-ctx.Done():
				done <- finished{err: ctx.Err()}
				return
			}
		}
	})
	for range workers {
		all.Go(func() {
			for j := range jobs {
				data, err := part(j.part)
				j.done <- finished{data: data, err: err}
			}
		})
	}
	for done := range results {
		f := <-done
		if f.err != nil {
			return f.err
		}
		if _, err := to.Write(f.data); err != nil {
			return err
		}
	}
	return ctx.Err()
}
