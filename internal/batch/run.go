package batch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Result is the outcome of a line: one line of JSON for the file of results.
type Result struct {
	Class Class
	Text  []byte // text without a newline
}

// Runner computes lines. Its methods must be safe for concurrent use.
type Runner interface {
	// Run computes a line. A *Later error postpones the line; any other error except that of ctx ends the batch.
	Run(ctx context.Context, b Batch, l Line) (Result, error)
	// Left returns the result of a line that was not run, with the reason as its class.
	Left(b Batch, l Line, why Class) Result
}

// Later is the error of a line that must be postponed. The line is run again after the duration After.
type Later struct{ After time.Duration }

func (l *Later) Error() string { return fmt.Sprintf("batch: run this line again after %v", l.After) }

// sweepEvery is the interval at which expired files are removed.
const sweepEvery = 10 * time.Minute

// Start runs lines on Options.Workers goroutines until Stop.
func (s *Store) Start(r Runner) {
	for range s.o.Workers {
		s.workers.Go(func() {
			for s.runNext(r) {
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeper = time.AfterFunc(sweepEvery, func() {
		s.Sweep()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stopped {
			s.sweeper.Reset(sweepEvery)
		}
	})
}

// Stop cancels running lines and closes the folder. The next process runs these lines again.
func (s *Store) Stop() error {
	s.mu.Lock()
	s.stopped = true
	for _, t := range []*time.Timer{s.sweeper, s.alarm} {
		if t != nil {
			t.Stop()
		}
	}
	for _, j := range s.batches {
		j.stop()
		if j.late != nil {
			j.late.Stop()
		}
	}
	s.change.Broadcast()
	s.mu.Unlock()
	s.workers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.batches {
		j.close()
	}
	return s.lock.Close()
}

// runNext waits for a line and runs it, or ends a batch. It returns false when the store has stopped.
func (s *Store) runNext(r Runner) bool {
	s.mu.Lock()
	j, n := s.wait()
	if j == nil {
		s.mu.Unlock()
		return false
	}
	if n < 0 {
		s.mu.Unlock()
		s.end(j, r)
		return true
	}
	j.flying++
	s.flying++
	batch, in := j.Batch, j.input
	s.mu.Unlock()
	line, err := in.line(n)
	var res Result
	if err == nil {
		res, err = r.Run(j.ctx, batch, line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.flying--
	s.flying--
	var later *Later
	switch {
	case err == nil:
		if err := s.record(j, n, res); err != nil {
			s.fail(j, err)
		}
	case j.ctx.Err() != nil: // the store stops or the batch has ended, so no result is recorded
		j.pending = append([]int{n}, j.pending...)
	case errors.As(err, &later):
		j.pending = append([]int{n}, j.pending...)
		j.after = s.o.Now().Add(later.After)
		s.wake(j, later.After)
	default:
		j.pending = append([]int{n}, j.pending...)
		s.fail(j, err)
	}
	s.change.Broadcast()
	return true
}

// wake calls Wake after the given time.
func (s *Store) wake(j *job, after time.Duration) {
	if j.late == nil {
		j.late = time.AfterFunc(after, s.Wake)
		return
	}
	j.late.Reset(after)
}

// Wake makes waiting workers check for lines to run and for batches that have expired.
func (s *Store) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	for _, j := range s.batches {
		if !j.State.Ended() && !j.Expires.After(now) {
			j.stop()
		}
	}
	s.change.Broadcast()
}

// fail stops a batch whose files cannot be read or written. The next process that opens the folder continues it.
func (s *Store) fail(j *job, err error) {
	j.broken = err
	s.o.Log.Error("a batch cannot continue; it is resumed after a restart", "batch", j.ID, "error", err)
}

// wait waits until a line can run or a batch must end; the returned line is -1 for a batch that must end. It returns
// nil when the store stops.
func (s *Store) wait() (*job, int) {
	for !s.stopped {
		if j, n := s.choose(); j != nil {
			return j, n
		}
		s.change.Wait()
	}
	return nil, 0
}

// choose returns the next line of the oldest batch of the tenant that has the fewest running lines. The caller holds
// mu.
func (s *Store) choose() (best *job, line int) {
	now := s.o.Now()
	running := map[string]int{}
	for _, j := range s.batches {
		running[j.Tenant] += j.flying
	}
	next := time.Duration(-1)
	for _, j := range s.batches {
		if j.State.Ended() || j.broken != nil {
			continue
		}
		expired := !j.Expires.After(now)
		if until := j.Expires.Sub(now); !expired && (next < 0 || until < next) {
			next = until // also without waiting lines: Wake cancels lines that run at this time
		}
		switch {
		case expired && j.State == Running:
			j.stop()
			fallthrough
		case j.State == Cancelling:
			if j.flying == 0 {
				return j, -1
			}
			continue
		case len(j.pending) == 0:
			if j.flying == 0 {
				return j, -1
			}
			continue
		}
		if j.after.After(now) || s.used+int64(s.flying+1)*s.reserve() > s.o.Budget {
			continue
		}
		if best == nil || before(j, best, running) {
			best = j
		}
	}
	switch {
	case next < 0:
	case s.alarm == nil:
		s.alarm = time.AfterFunc(next, s.Wake)
	default:
		s.alarm.Reset(next)
	}
	if best == nil {
		return nil, 0
	}
	line = best.pending[0]
	best.pending = best.pending[1:]
	return best, line
}

func before(a, b *job, running map[string]int) bool {
	if ra, rb := running[a.Tenant], running[b.Tenant]; ra != rb {
		return ra < rb
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c < 0
	}
	return a.ID < b.ID
}

// reserve returns the bytes of the budget that are reserved for the result of a running line.
func (s *Store) reserve() int64 { return min(256<<10, s.o.Budget/64) }

// record appends the result of line n to a journal. The caller holds mu.
func (s *Store) record(j *job, n int, r Result) error {
	entry := appendEntry(nil, n, r)
	if _, err := j.journal(r.Class).Write(entry); err != nil {
		return err
	}
	s.used += int64(len(entry))
	s.lines[r.Class]++
	j.done[n] = true
	j.Counts.add(r.Class)
	return nil
}

// end ends a batch: it records results for lines that were not run, and closes the files.
func (s *Store) end(j *job, r Runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.State.Ended() || j.broken != nil || j.flying > 0 || j.input == nil {
		return // another worker has ended the batch
	}
	state, why := Completed, LineExpired
	switch {
	case len(j.pending) == 0:
	case j.State == Cancelling:
		state, why = Cancelled, LineCancel
	default:
		state = Expired
	}
	if j.State == Cancelling {
		state = Cancelled
	}
	for len(j.pending) > 0 {
		n := j.pending[0]
		line, err := j.input.line(n)
		if err == nil {
			err = s.record(j, n, r.Left(j.Batch, line, why))
		}
		if err != nil {
			s.fail(j, err)
			return
		}
		j.pending = j.pending[1:]
	}
	if err := s.finish(j, state); err != nil {
		s.fail(j, err)
	}
	s.change.Broadcast()
}

// finish publishes the journals as files and then marks the batch as ended. If the process is killed between the steps,
// the next process repeats both. The caller holds mu.
func (s *Store) finish(j *job, state State) error {
	now := s.o.Now().UTC()
	for i, id := range []string{j.Output, j.Errors} {
		f := j.journals[i]
		if f == nil {
			continue
		}
		if err := f.Sync(); err != nil {
			return err
		}
		info, err := os.Stat(s.data(id))
		if err != nil {
			return err
		}
		lines := int64(j.Counts.Succeeded)
		switch {
		case j.Output == j.Errors:
			lines = int64(j.Counts.Done())
		case i == 1:
			lines = int64(j.Counts.Done() - j.Counts.Succeeded)
		}
		if lines == 0 && j.Output != j.Errors {
			if err := os.Remove(s.data(id)); err != nil {
				return err
			}
			continue
		}
		name := "output"
		if i == 1 {
			name = "errors"
		}
		out := &File{ID: id, Tenant: j.Tenant, Name: j.ID + "_" + name + ".jsonl", Purpose: "batch_output",
			Bytes: info.Size() - headBytes*lines, Created: now, Expires: now.Add(s.o.Keep), Journal: true}
		if err := s.saveMeta(id, out); err != nil {
			return err
		}
		s.files[id] = out
	}
	was := j.Batch
	j.State, j.Ended = state, now
	if err := s.saveMeta(j.ID, &j.Batch); err != nil {
		j.Batch = was
		return err
	}
	if s.held[j.Input]--; s.held[j.Input] == 0 {
		delete(s.held, j.Input)
	}
	j.close()
	if j.Hidden {
		size := s.size(j.Input, 0)
		s.used -= size
		s.note("the input of a batch was not removed", j.ID, os.Remove(s.data(j.Input)))
	}
	return nil
}

// HasFile reports whether a file of results exists: a batch without failed lines has no error file.
func (s *Store) HasFile(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[id] != nil
}
