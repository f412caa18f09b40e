package batch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// job is a batch of the store. The store's mutex guards it.
type job struct {
	Batch
	ctx  context.Context // context of the running lines
	stop context.CancelFunc

	input    *input // lines of the batch; nil after the batch has ended
	journals [2]*os.File
	done     []bool // reports for each line whether it has ended
	pending  []int  // numbers of the lines to run, in order
	flying   int
	after    time.Time // time before which no line begins
	late     *time.Timer
	broken   error // error of the folder, after which no line is run
}

// New holds the inputs of a new batch.
type New struct {
	Tenant, Kind, Endpoint string
	Prefix                 string    // prefix of the id; empty means the prefix of OpenAI's batches
	Input                  string    // id of an uploaded file
	Lines                  io.Reader // the lines themselves, if Input is empty
	Metadata               map[string]string
	Window                 time.Duration // maximum time from creation to the end
	OneFile                bool          // results of all classes go to one file
}

// Create makes a batch from a file and starts it.
func (s *Store) Create(n New) (Batch, error) {
	now := s.o.Now().UTC()
	name := rand.Text()
	b := Batch{ID: batchPrefix + name, Tenant: n.Tenant, Kind: n.Kind, Endpoint: n.Endpoint, Input: n.Input,
		Metadata: n.Metadata, State: Running, Created: now, Expires: now.Add(n.Window),
		Output: filePrefix + name + "-output", Errors: filePrefix + name + "-errors"}
	if n.Prefix != "" {
		b.ID = n.Prefix + name
	}
	if n.OneFile {
		b.Errors = b.Output
	}
	var hidden *File
	if n.Lines != nil {
		hidden = &File{ID: filePrefix + name + "-input", Tenant: n.Tenant, Created: now, Expires: now.Add(s.o.Keep)}
		if err := s.write(hidden, n.Lines); err != nil {
			return Batch{}, err
		}
		b.Input, b.Hidden = hidden.ID, true
	} else if err := s.hold(n.Tenant, n.Input); err != nil {
		return Batch{}, err
	} else {
		defer s.unhold(n.Input)
	}
	j, err := s.openJob(&b)
	if err == nil {
		if err = s.saveMeta(b.ID, &j.Batch); err != nil {
			j.close()
			s.unhold(b.Input)
		}
	}
	if err != nil {
		if hidden != nil {
			err = errors.Join(err, s.remove(hidden.ID, hidden.Bytes))
		}
		return Batch{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[b.ID] = j
	s.change.Broadcast()
	return j.Batch, nil
}

// hold prevents a file from being deleted, after checking that it can be the input of a batch.
func (s *Store) hold(tenant, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.fileLocked(tenant, id)
	if err == nil && f.Purpose != "batch" {
		err = fmt.Errorf("%w: the purpose of %s is %q; upload the lines with the purpose batch", ErrInput, id,
			f.Purpose)
	}
	if err == nil {
		s.held[id]++
	}
	return err
}

func (s *Store) unhold(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[id]--; s.held[id] == 0 {
		delete(s.held, id)
	}
}

// openJob prepares a new batch, or a batch that an earlier process has begun: lines whose results are in the journals
// are done.
func (s *Store) openJob(b *Batch) (_ *job, err error) {
	j := &job{Batch: *b}
	j.ctx, j.stop = context.WithCancel(context.Background())
	if b.State.Ended() {
		j.stop()
		return j, nil
	}
	if j.input, err = openInput(s.data(b.Input), s.o.Lines, s.o.Line); err != nil {
		j.stop()
		return nil, err
	}
	j.Lines, j.Counts = len(j.input.starts), Counts{}
	j.done = make([]bool, j.Lines)
	files := []string{b.Output, b.Errors}
	if b.Output == b.Errors {
		files = files[:1]
	}
	for i, id := range files {
		f, err := recoverJournal(s.data(id), func(line int, class Class) error {
			if line >= j.Lines || j.done[line] {
				return fmt.Errorf("%w: line %d of %d is repeated or out of range", ErrFolder, line, j.Lines)
			}
			j.done[line] = true
			j.Counts.add(class)
			return nil
		})
		if err != nil {
			j.close()
			return nil, err
		}
		j.journals[i] = f
	}
	for n, done := range j.done {
		if !done {
			j.pending = append(j.pending, n)
		}
	}
	s.mu.Lock()
	s.held[b.Input]++
	s.mu.Unlock()
	return j, nil
}

// close closes the files of the batch.
func (j *job) close() {
	j.stop()
	if j.input != nil {
		_ = j.input.file.Close() // the file was only read
		j.input = nil
	}
	for i, f := range j.journals {
		if f != nil {
			_ = f.Close() // write errors were reported when the journal was written
			j.journals[i] = nil
		}
	}
	j.done, j.pending = nil, nil
}

// journal returns the file for the results of a class.
func (j *job) journal(c Class) *os.File {
	if c == Succeeded || j.journals[1] == nil {
		return j.journals[0]
	}
	return j.journals[1]
}

// Batch returns a tenant's batch.
func (s *Store) Batch(tenant, id string) (Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.jobLocked(tenant, id)
	if err != nil {
		return Batch{}, err
	}
	return j.Batch, nil
}

func (s *Store) jobLocked(tenant, id string) (*job, error) {
	j := s.batches[id]
	if j == nil || j.Tenant != tenant {
		return nil, fmt.Errorf("%w: no batch %.100q", ErrUnknown, id)
	}
	return j, nil
}

// Batches returns the batches of a tenant and a kind, newest first, beginning after the given id.
func (s *Store) Batches(tenant, kind, after string, limit int) (list []Batch, more bool) {
	s.mu.Lock()
	for _, j := range s.batches {
		if j.Tenant == tenant && j.Kind == kind {
			list = append(list, j.Batch)
		}
	}
	s.mu.Unlock()
	return page(list, func(b *Batch) string { return b.ID }, func(b *Batch) time.Time { return b.Created }, after,
		limit)
}

// Cancel ends a batch: running lines are cancelled, existing results are kept.
func (s *Store) Cancel(tenant, id string) (Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.jobLocked(tenant, id)
	switch {
	case err != nil:
		return Batch{}, err
	case j.State.Ended():
		return j.Batch, fmt.Errorf("%w: the batch is already %s", ErrEnded, j.State)
	case j.State == Cancelling:
		return j.Batch, nil
	}
	j.State, j.Cancel = Cancelling, s.o.Now().UTC()
	if err := s.saveMeta(id, &j.Batch); err != nil {
		j.State, j.Cancel = Running, time.Time{}
		return Batch{}, err
	}
	j.stop()
	s.change.Broadcast()
	return j.Batch, nil
}

// DeleteBatch removes a batch that has ended, with its results, and also its input if that was not uploaded as a file.
func (s *Store) DeleteBatch(tenant, id string) error {
	s.mu.Lock()
	j, err := s.jobLocked(tenant, id)
	if err == nil && !j.State.Ended() {
		err = fmt.Errorf("%w: the batch is %s; cancel it, and wait until it has ended", ErrInUse, j.State)
	}
	var files []string
	if err == nil {
		delete(s.batches, id)
		files = append(files, j.Output)
		if j.Errors != j.Output {
			files = append(files, j.Errors)
		}
		if j.Hidden {
			files = append(files, j.Input)
		}
		for _, f := range files {
			delete(s.files, f)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	errs := []error{s.remove(id, 0)}
	for _, f := range files {
		errs = append(errs, s.remove(f, s.size(f, 0)))
	}
	return errors.Join(errs...)
}
