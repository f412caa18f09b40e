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

// job is a batch with its files and progress. The store's mutex guards it.
type job struct {
	Batch
	ctx  context.Context // context for running the batch's lines
	stop context.CancelFunc

	input    *input // lines of the batch; nil after the batch has ended
	journals [2]*os.File
	done     []bool // [lines] whether the line has a result
	pending  []int  // numbers of the lines that still have to run, in order
	flying   int
	after    time.Time // no line starts before this time
	late     *time.Timer
	broken   error // error of the folder; no more lines run after it
}

// New holds the parameters of a new batch.
type New struct {
	Tenant, Kind, Endpoint string
	Prefix                 string    // prefix of the id; empty means that of OpenAI's batches
	Input                  string    // id of an uploaded file; empty if Lines is set
	Lines                  io.Reader // content of the input, if Input is empty
	Metadata               map[string]string
	Window                 time.Duration // maximum time from creation until the batch expires
	OneFile                bool          // whether all results go to one file, or failed lines to a second one
}

// Create creates a batch and starts running its lines.
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

// hold checks that a file can be the input of a batch, and prevents its deletion.
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

// openJob opens the files of a new batch or of an unfinished batch of an earlier process, whose results are kept.
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
			_ = f.Close() // errors of writes were returned by the writes
			j.journals[i] = nil
		}
	}
	j.done, j.pending = nil, nil
}

// journal returns the journal for results of class c.
func (j *job) journal(c Class) *os.File {
	if c == Succeeded || j.journals[1] == nil {
		return j.journals[0]
	}
	return j.journals[1]
}

// Batch returns the tenant's batch with the given id.
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

// Batches returns the batches of a tenant with the given kind, newest first, starting after the batch with id after.
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

// Cancel cancels the running lines of a batch and ends it. Existing results are kept.
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

// DeleteBatch removes a batch that has ended, its results, and its input if that is not an uploaded file.
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
