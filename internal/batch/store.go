package batch

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sparrow/internal/filelock"
	"sparrow/internal/textfile"
	"sparrow/internal/unit"
)

// Default values of Options.
const (
	DefaultBudget = 4 << 30
	DefaultKeep   = 30 * 24 * time.Hour
	DefaultLines  = 50_000
	DefaultLine   = 8 << 20
)

// Options holds the folder of batches and its limits. Zero means the default above.
type Options struct {
	Dir    string
	Budget int64         // maximum number of bytes in the folder
	Keep   time.Duration // default time until files and ended batches are deleted
	Lines  int           // maximum number of lines of a batch
	Line   int64         // maximum length of a line, in bytes
	// Workers is the maximum number of concurrently running lines.
	Workers int
	Now     func() time.Time
	Log     *slog.Logger
}

// Store holds the files and batches of a folder. Only one process at a time may use the folder.
type Store struct {
	o    Options
	lock *os.File

	mu      sync.Mutex
	change  *sync.Cond // signalled when lines can run or the store stops
	used    int64      // bytes of data in the folder
	flying  int        // number of running lines
	files   map[string]*File
	batches map[string]*job
	held    map[string]int // [file id] number of unfinished batches whose input the file is
	lines   map[Class]int64
	stopped bool
	workers sync.WaitGroup
	sweeper *time.Timer
	alarm   *time.Timer // fires when the next batch expires
}

// uploadPart/uploadOf is the share of the budget for uploads; the rest is for results.
const uploadPart, uploadOf = 7, 8

// Open opens or creates a folder. Batches of an earlier process continue after Start.
func Open(o Options) (*Store, error) {
	o.Budget, o.Keep = cmp.Or(o.Budget, DefaultBudget), cmp.Or(o.Keep, DefaultKeep)
	o.Lines, o.Line, o.Workers = cmp.Or(o.Lines, DefaultLines), cmp.Or(o.Line, DefaultLine), cmp.Or(o.Workers, 1)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, files: map[string]*File{}, batches: map[string]*job{}, held: map[string]int{},
		lines: map[Class]int64{}}
	s.change = sync.NewCond(&s.mu)
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	if err := s.claim(filelock.Try); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.Sweep()
	return s, nil
}

// claim locks the folder, so that no other process uses it. try is filelock.Try except in tests.
func (s *Store) claim(try func(*os.File) (bool, error)) error {
	f, err := os.OpenFile(filepath.Join(s.o.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFolder, err)
	}
	ok, err := try(f)
	if errors.Is(err, filelock.ErrNone) {
		s.o.Log.Warn("the folder of batches cannot be locked on this file system; make sure that only one server "+
			"uses it", "folder", s.o.Dir)
		ok, err = true, nil
	}
	if err == nil && !ok {
		err = fmt.Errorf("another server uses %s; use a separate folder for each server", s.o.Dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrFolder, err), f.Close())
	}
	s.lock = f
	return nil
}

func (s *Store) data(id string) string { return filepath.Join(s.o.Dir, id+".data") }
func (s *Store) meta(id string) string { return filepath.Join(s.o.Dir, id+".json") }

// saveMeta replaces the metadata file of an object atomically.
func (s *Store) saveMeta(id string, v any) error {
	return textfile.Replace(s.meta(id), func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

// Prefixes of ids, which identify the kind of an object.
const (
	filePrefix  = "file-"
	batchPrefix = "batch_"
	// MessagePrefix is the prefix of the ids of batches of Anthropic's interface.
	MessagePrefix = "msgbatch_"
)

// load reads the folder. It removes files that belong to no object, which incomplete uploads leave.
func (s *Store) load() error {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFolder, err)
	}
	var found []*Batch
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		text, err := os.ReadFile(s.meta(id))
		if err == nil && strings.HasPrefix(id, filePrefix) {
			f := &File{}
			if err = json.Unmarshal(text, f); err == nil {
				s.files[id] = f
			}
		} else if err == nil {
			b := &Batch{}
			if err = json.Unmarshal(text, b); err == nil {
				found = append(found, b)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrFolder, s.meta(id), err)
		}
	}
	known := map[string]bool{}
	for id := range s.files {
		known[id] = true
	}
	for _, b := range found {
		if !b.State.Ended() { // the metadata of an ended batch contains its counts
			known[b.Input], known[b.Output], known[b.Errors] = true, true, true
		}
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".data"); ok && !known[id] || strings.HasSuffix(e.Name(), ".part") {
			if err := os.Remove(filepath.Join(s.o.Dir, e.Name())); err != nil {
				return fmt.Errorf("%w: %w", ErrFolder, err)
			}
		} else if ok {
			info, err := e.Info()
			if err != nil {
				return fmt.Errorf("%w: %w", ErrFolder, err)
			}
			s.used += info.Size()
		}
	}
	for _, b := range found {
		j, err := s.openJob(b)
		if err != nil {
			return err
		}
		s.batches[b.ID] = j
	}
	return nil
}

// Used returns the bytes of data in the folder, and the budget.
func (s *Store) Used() (used, budget int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.o.Budget
}

// Upload stores a file. The caller sets Name, Purpose and Tenant, and optionally Expires.
func (s *Store) Upload(f File, from io.Reader) (_ File, err error) {
	f.ID, f.Created = filePrefix+rand.Text(), s.o.Now().UTC()
	if f.Expires.IsZero() {
		f.Expires = f.Created.Add(s.o.Keep)
	}
	if err := s.write(&f, from); err != nil {
		return File{}, err
	}
	if err := s.saveMeta(f.ID, &f); err != nil {
		return File{}, errors.Join(err, s.remove(f.ID, f.Bytes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[f.ID] = &f
	return f, nil
}

// write copies an upload to the data file of f; it returns ErrFull above the budget.
func (s *Store) write(f *File, from io.Reader) (err error) {
	out, err := os.OpenFile(s.data(f.ID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, s.remove(f.ID, f.Bytes))
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, readErr := from.Read(buf)
		if n > 0 {
			if err := s.take(int64(n)); err != nil {
				return err
			}
			f.Bytes += int64(n)
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return out.Sync()
		}
		if readErr != nil {
			return readErr
		}
	}
}

// take adds n bytes of an upload to the bytes in use, or returns ErrFull.
func (s *Store) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.o.Budget / uploadOf * uploadPart; s.used+n > most {
		return fmt.Errorf("%w: it contains %s, and uploads may fill it up to %s of %s; delete files or batches, or "+
			"wait until files expire", ErrFull, unit.Bytes(s.used), unit.Bytes(most), unit.Bytes(s.o.Budget))
	}
	s.used += n
	return nil
}

// remove removes the data and the metadata of an object; bytes is the size of its data.
func (s *Store) remove(id string, bytes int64) error {
	s.mu.Lock()
	s.used -= bytes
	s.change.Broadcast() // lines may wait for free space
	s.mu.Unlock()
	var errs []error
	for _, path := range []string{s.meta(id), s.data(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// File returns the tenant's file with the given id.
func (s *Store) File(tenant, id string) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fileLocked(tenant, id)
}

func (s *Store) fileLocked(tenant, id string) (File, error) {
	f := s.files[id]
	if f == nil || f.Tenant != tenant || f.Purpose == "" {
		return File{}, fmt.Errorf("%w: no file %.100q", ErrUnknown, id)
	}
	return *f, nil
}

// Files returns the files of a tenant, newest first, starting after the file with id after; an empty purpose selects
// all.
func (s *Store) Files(tenant, purpose, after string, limit int) (list []File, more bool) {
	s.mu.Lock()
	for _, f := range s.files {
		if f.Tenant == tenant && f.Purpose != "" && (purpose == "" || f.Purpose == purpose) {
			list = append(list, *f)
		}
	}
	s.mu.Unlock()
	return page(list, func(f *File) string { return f.ID }, func(f *File) time.Time { return f.Created }, after, limit)
}

// Expire sets the time at which a file expires.
func (s *Store) Expire(tenant, id string, at time.Time) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.fileLocked(tenant, id)
	if err != nil {
		return File{}, err
	}
	f.Expires = at
	if err := s.saveMeta(id, &f); err != nil {
		return File{}, err
	}
	*s.files[id] = f
	return f, nil
}

// Content opens a file to read it.
func (s *Store) Content(tenant, id string) (File, io.ReadCloser, error) {
	f, err := s.File(tenant, id)
	if err != nil {
		return File{}, nil, err
	}
	data, err := os.Open(s.data(id))
	if err != nil {
		return File{}, nil, err
	}
	if f.Journal {
		return f, newResults(data), nil
	}
	return f, data, nil
}

// DeleteFile removes the tenant's file with the given id.
func (s *Store) DeleteFile(tenant, id string) error {
	s.mu.Lock()
	f, err := s.fileLocked(tenant, id)
	if err == nil && s.held[id] > 0 {
		err = fmt.Errorf("%w: a batch that has not ended reads %s; cancel the batch, or wait", ErrInUse, id)
	}
	if err == nil {
		delete(s.files, id)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.remove(id, s.size(id, f.Bytes))
}

// size returns the bytes of an object's data file, or guess if its size cannot be read.
func (s *Store) size(id string, guess int64) int64 {
	if info, err := os.Stat(s.data(id)); err == nil {
		return info.Size()
	}
	return guess
}

// Sweep removes expired files and batches.
func (s *Store) Sweep() {
	now := s.o.Now()
	s.mu.Lock()
	var files []File
	for id, f := range s.files {
		if !f.Expires.After(now) && s.held[id] == 0 {
			files = append(files, *f)
			delete(s.files, id)
		}
	}
	var old []Batch
	for id, j := range s.batches {
		if j.State.Ended() && !j.Ended.Add(s.o.Keep).After(now) {
			old = append(old, j.Batch)
			delete(s.batches, id)
		}
	}
	s.mu.Unlock()
	for i := range files {
		s.note("a file that has expired was not removed", files[i].ID, s.remove(files[i].ID,
			s.size(files[i].ID, files[i].Bytes)))
	}
	for i := range old {
		s.note("a batch that has expired was not removed", old[i].ID, s.remove(old[i].ID, 0))
	}
}

func (s *Store) note(what, id string, err error) {
	if err != nil {
		s.o.Log.Warn(what, "id", id, "error", err)
	}
}

// Stats holds the values of the metrics of a store.
type Stats struct {
	Used, Budget int64
	Batches      map[State]int
	Flying       int             // number of running lines
	Left         int             // number of lines without a result in unfinished batches
	Lines        map[Class]int64 // [class] number of lines that have ended since the folder was opened
}

// Stats returns the current values.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{Used: s.used, Budget: s.o.Budget, Flying: s.flying, Batches: map[State]int{},
		Lines: map[Class]int64{}}
	for _, state := range []State{Running, Cancelling, Completed, Cancelled, Expired} {
		out.Batches[state] = 0
	}
	for _, c := range classes {
		out.Lines[c] = s.lines[c]
	}
	for _, j := range s.batches {
		out.Batches[j.State]++
		if !j.State.Ended() {
			out.Left += j.Lines - j.Counts.Done()
		}
	}
	return out
}
