package tier

import (
	"cmp"
	"container/list"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sparrow/internal/kv/prefix"
)

// Names of files in the folder of a disk cache. Files with other names are ignored.
const (
	pageSuffix      = ".page"
	unfinishedStart = "unfinished-"
)

// diskQueue is the maximum number of pages queued for writing; if it is exceeded, pages are not stored.
const diskQueue = 64

// disk stores pages as files, one for each page, named by its hash. A file is written under a temporary name and then
// renamed. It contains a checksum, by which a file truncated by a crash is detected and removed, so that fsync is not
// needed.
//
// Any call of a file system may hang. After openDisk, one goroutine creates and removes files, and others read them. No
// goroutine holds mu during a file system call, so that lookups never wait.
type disk struct {
	dir   string
	most  int64 // maximum bytes of all files
	spec  *Spec
	hears prefix.Listener
	log   *slog.Logger
	lock  *os.File

	ctx     context.Context // cancelled when the tier closes
	stop    context.CancelFunc
	writes  chan *Page
	doom    chan struct{} // signals that doomed is not empty; capacity 1
	stopped chan struct{}
	calls   atomic.Int64 // number of files that were created or removed

	patience time.Duration                  // maximum time of a read; differs from diskWait only in tests
	load     func(*Page, prefix.Hash) error // reads a page; replaced in tests
	save     func(*Page) error              // writes the file of a page; replaced in tests
	unlink   func(prefix.Hash) error        // removes the file of a page; replaced in tests
	reading  chan struct{}                  // semaphore: one element for each read that has not returned
	late     atomic.Int32                   // number of running reads that have exceeded their time
	reads    sync.WaitGroup                 // reads that have not returned

	mu    sync.Mutex
	pages map[prefix.Hash]*list.Element // elements of order, by the hash that they hold
	order list.List                     // hashes, most recently used first
	// pending holds the pages that are queued or being written; lookups return them until their files are complete.
	pending map[prefix.Hash]*Page
	doomed  []prefix.Hash // dropped pages whose files must be removed
	count   Count
}

// openDisk opens the folder of a disk cache, creates it if it does not exist, and removes invalid files from it.
func openDisk(dir string, bytes int64, spec *Spec, l prefix.Listener, log *slog.Logger) (*disk, error) {
	if bytes < int64(spec.Size()) {
		return nil, fmt.Errorf("tier: a disk cache of %d bytes is smaller than one page of %d bytes; allow more "+
			"(--disk-cache-size)", bytes, spec.Size())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("tier: the folder of the disk cache: %w", err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("tier: the disk cache %s is in use by another process, or cannot be locked: %w; use "+
			"a separate folder for each server (--disk-cache)", dir, err)
	}
	d := &disk{dir: dir, most: bytes, spec: spec, hears: l, log: log, lock: lock, writes: make(chan *Page, diskQueue),
		stopped: make(chan struct{}), pages: map[prefix.Hash]*list.Element{}, pending: map[prefix.Hash]*Page{},
		count: Count{Tier: "disk"}, patience: diskWait, doom: make(chan struct{}, 1),
		reading: make(chan struct{}, mostReads)}
	d.load, d.save = d.read, d.file
	d.unlink = func(k prefix.Hash) error { return os.Remove(d.path(k)) }
	d.ctx, d.stop = context.WithCancel(context.Background())
	if err := d.scan(); err != nil {
		return nil, errors.Join(fmt.Errorf("tier: the disk cache: %w", err), lock.Close())
	}
	go d.write()
	return d, nil
}

// scan reads the headers of all files, oldest first, and removes invalid files.
func (d *disk) scan() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	type file struct {
		at   time.Time
		page prefix.Stored
	}
	var files []file
	removed := 0
	for _, e := range entries {
		path := filepath.Join(d.dir, e.Name())
		_, isPage := hashOf(e.Name())
		if !isPage && !strings.HasPrefix(e.Name(), unfinishedStart) {
			continue
		}
		info, err := e.Info()
		if err == nil && isPage {
			var page prefix.Stored
			if page, err = d.header(path, info); err == nil {
				files = append(files, file{info.ModTime(), page})
				continue
			}
		}
		if removed++; removed <= 3 {
			d.log.Info("a file of the disk cache cannot be used and is removed", "file", e.Name(), "reason", err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for _, f := range files {
		d.add(f.page)
	}
	d.log.Info("disk cache", "folder", d.dir, "pages", len(files), "removed", removed)
	return nil
}

// header reads and checks the header of a page's file.
func (d *disk) header(path string, info fs.FileInfo) (prefix.Stored, error) {
	if !info.Mode().IsRegular() {
		return prefix.Stored{}, fmt.Errorf("%w: it is not a regular file", ErrDamaged)
	}
	f, _, err := openRegular(path)
	if err != nil {
		return prefix.Stored{}, err
	}
	defer f.Close()
	head := make([]byte, d.spec.HeaderBytes())
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return prefix.Stored{}, err
	}
	page, err := d.spec.CheckHeader(head[:n], info.Size())
	if k, _ := hashOf(filepath.Base(path)); err == nil && page.Hash != k {
		err = fmt.Errorf("%w: the file name is the hash of another page", ErrOther)
	}
	return page, err
}

// hashOf returns the hash of the page from its file name.
func hashOf(name string) (k prefix.Hash, ok bool) {
	text, found := strings.CutSuffix(name, pageSuffix)
	if !found || len(text) != hex.EncodedLen(len(k)) {
		return k, false
	}
	n, err := hex.Decode(k[:], []byte(text))
	return k, err == nil && n == len(k) && k.String() == text
}

func (d *disk) path(k prefix.Hash) string { return filepath.Join(d.dir, k.String()+pageSuffix) }

// add adds a page whose file is complete, and drops the least recently used pages above the budget. The caller holds
// mu, or no other goroutine uses the tier.
func (d *disk) add(p prefix.Stored) {
	if d.pages[p.Hash] != nil {
		return
	}
	d.pages[p.Hash] = d.order.PushFront(p.Hash)
	d.hears.Stored(p)
	for int64(d.order.Len())*int64(d.spec.Size()) > d.most {
		d.count.Evicted++
		d.remove(d.order.Back().Value.(prefix.Hash))
	}
}

// remove drops a page and queues its file for removal. The caller holds mu.
func (d *disk) remove(k prefix.Hash) {
	e := d.pages[k]
	if e == nil {
		return
	}
	d.order.Remove(e)
	delete(d.pages, k)
	d.removeFile(k)
	d.hears.Removed(k)
}

// removeFile queues the file of a dropped page for removal. The caller holds mu. One goroutine both removes and creates
// files, so the queue is never longer than the number of files.
func (d *disk) removeFile(k prefix.Hash) {
	d.doomed = append(d.doomed, k)
	select {
	case d.doom <- struct{}{}:
	default:
	}
}

func (d *disk) Name() string { return "disk" }

// Wants reports whether a page is to be stored: pages are stored when they become reusable, to outlive the process.
func (d *disk) Wants(k prefix.Hash, o Occasion) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return o == Stored && !d.has(k)
}

func (d *disk) Has(k prefix.Hash) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.has(k)
}

// has reports whether a page has a file or is queued for writing. The caller holds mu.
func (d *disk) has(k prefix.Hash) bool { return d.pages[k] != nil || d.pending[k] != nil }

// waiting returns a page that is queued for writing, with an added reference, or nil.
func (d *disk) waiting(k prefix.Hash) *Page {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pending[k]
	if p != nil {
		p.Hold()
	}
	return p
}

// Put queues a page for writing.
func (d *disk) Put(p *Page) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil || d.has(p.Hash) {
		return
	}
	p.Hold()
	select {
	case d.writes <- p:
		d.pending[p.Hash] = p
	default:
		d.count.Dropped++
		p.Drop()
	}
}

// write writes queued pages and removes files. When the tier closes, it writes the remaining queued pages and returns.
func (d *disk) write() {
	defer close(d.stopped)
	for open := true; open; {
		select {
		case p := <-d.writes:
			d.keep(p)
		case <-d.doom:
		case <-d.ctx.Done():
			for open = false; len(d.writes) > 0; { // nothing is added to the queue any more
				d.keep(<-d.writes)
			}
		}
		d.sweep()
	}
}

// sweep removes the files of dropped pages, except pages that were stored again.
func (d *disk) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.doomed) > 0 {
		k := d.doomed[0]
		if d.doomed = d.doomed[1:]; d.pages[k] != nil {
			continue
		}
		d.mu.Unlock()
		err := d.unlink(k)
		d.calls.Add(1)
		d.mu.Lock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.count.Failed++ // the file remains; the next start finds it
		}
	}
	d.doomed = nil
}

// keep writes a page to its file and releases its reference.
func (d *disk) keep(p *Page) {
	defer p.Drop()
	d.mu.Lock()
	wanted := d.pending[p.Hash] == p // false if Clear has dropped the page
	d.mu.Unlock()
	if !wanted {
		return
	}
	err := d.save(p)
	d.calls.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if wanted = d.pending[p.Hash] == p; wanted {
		delete(d.pending, p.Hash)
	}
	switch {
	case err != nil:
		if d.count.Failed++; d.count.Failed == 1 {
			d.log.Warn("a page could not be written to the disk cache", "folder", d.dir, "error", err)
		}
	case wanted:
		d.count.Stored++
		d.add(p.Stored)
	case !d.has(p.Hash):
		d.removeFile(p.Hash)
	}
}

// file writes a page to its file.
func (d *disk) file(p *Page) (err error) {
	f, err := os.CreateTemp(d.dir, unfinishedStart)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // a file that cannot be removed is removed at the next start
		}
	}()
	_, err = f.Write(d.spec.AppendHeader(nil, p))
	if err == nil {
		_, err = f.Write(p.Data)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), d.path(p.Hash))
}

// Load reads files one after the other. A page that is queued for writing is delivered from memory.
func (d *disk) Load(ctx context.Context, keys []prefix.Hash, room func(context.Context) *Page,
	deliver func(*Page) bool) (n int, why string) {
	for ; n < len(keys); n++ {
		begun, err := time.Now(), error(nil)
		p := d.waiting(keys[n])
		if p == nil {
			if !d.Has(keys[n]) {
				return n, notHeld
			}
			if p = room(ctx); p == nil {
				return n, noMemory
			}
			begun = time.Now()
			if err = d.readSoon(ctx, p, keys[n]); errors.Is(err, errHangs) {
				return n, noAnswer
			}
		}
		d.mu.Lock()
		d.count.Busy += time.Since(begun)
		if err != nil {
			d.lose(keys[n], err)
		} else {
			d.count.Hits++
			d.count.HitBytes += int64(len(p.Data))
			if e := d.pages[keys[n]]; e != nil {
				d.order.MoveToFront(e)
			}
		}
		d.mu.Unlock()
		if err != nil {
			p.Drop()
			return n, "damaged"
		}
		if !deliver(p) {
			p.Drop()
			return n, ""
		}
	}
	return n, ""
}

// lose drops a page whose file cannot be read. The caller holds mu.
func (d *disk) lose(k prefix.Hash, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		d.count.Failed++ // another program has removed the file
	} else {
		d.count.Damaged++
	}
	d.log.Warn("a page of the disk cache cannot be used and is removed", "file", k.String()+pageSuffix, "error", err)
	d.remove(k)
}

// openRegular opens a regular file for reading. It does not block if the path is a FIFO.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: it is not a regular file", ErrDamaged)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// diskWait is the maximum time to read a page.
const diskWait = 5 * time.Second

// closeShare: when the tier closes, diskWait/closeShare is the maximum time to write a file.
const closeShare = 5

// errHangs means that the file system does not respond.
var errHangs = errors.New("tier: the file system does not respond")

// mostReads is the maximum number of concurrent reads. A read blocks a thread while the file system does not respond.
const mostReads = 16

// readSoon reads a page from its file. If the file system does not respond in time, or ctx ends, it returns errHangs;
// the page is released when the read returns. No read is started while another one has exceeded its time.
func (d *disk) readSoon(ctx context.Context, p *Page, k prefix.Hash) error {
	timeout := time.NewTimer(d.patience)
	defer timeout.Stop()
	if d.late.Load() > 0 || !d.startRead(ctx, timeout.C) {
		p.Drop()
		return errHangs
	}
	done := make(chan error, 1)
	go func() {
		done <- d.load(p, k)
		<-d.reading
	}()
	late := int32(0)
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		d.log.Warn("the disk cache does not respond; prompts are computed until it does", "folder", d.dir)
		late = 1
	case <-ctx.Done():
	}
	d.late.Add(late)
	d.reads.Go(func() {
		<-done
		p.Drop()
		d.late.Add(-late)
	})
	return errHangs
}

// startRead waits until fewer than mostReads reads are running. It returns false if this takes too long.
func (d *disk) startRead(ctx context.Context, timeout <-chan time.Time) bool {
	select {
	case d.reading <- struct{}{}:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

// read reads a page from its file.
func (d *disk) read(p *Page, k prefix.Hash) error {
	f, info, err := openRegular(d.path(k))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.spec.read(p, k, f, info.Size()); err != nil {
		return err
	}
	// The modification time stores the order of use for the next start. If it cannot be set, the page counts as older.
	now := time.Now()
	_ = os.Chtimes(d.path(k), now, now)
	return nil
}

// read reads a page of size bytes from r and checks it. If size is wrong, it reads nothing.
func (s *Spec) read(p *Page, want prefix.Hash, r io.Reader, size int64) error {
	if size != int64(s.Size()) {
		return fmt.Errorf("%w: the file has %d bytes, want %d", ErrDamaged, size, s.Size())
	}
	head := make([]byte, s.HeaderBytes())
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	found, err := s.CheckHeader(head, size)
	if err == nil && found.Hash != want {
		err = fmt.Errorf("%w: the file holds another page", ErrOther)
	}
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(r, p.Data); err != nil {
		return err
	}
	p.Stored = found
	return s.CheckRows(head, p.Data)
}

func (d *disk) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.pages {
		d.remove(k)
	}
	clear(d.pending)
	d.hears.Cleared()
}

func (d *disk) Count() Count {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.count
	c.Pages = int64(d.order.Len())
	c.Bytes = c.Pages * int64(d.spec.Size())
	return c
}

// Close writes queued pages, waits for running reads, and unlocks the folder. It stops waiting if the disk does not
// respond. The files are kept.
func (d *disk) Close() error {
	d.mu.Lock()
	d.stop()
	d.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-d.stopped
		d.reads.Wait()
	}()
	for before := int64(-1); before != d.calls.Load(); {
		before = d.calls.Load()
		select {
		case <-ended:
			return d.lock.Close()
		case <-time.After(d.patience / closeShare):
		}
	}
	d.log.Warn("the disk cache does not respond; the queued pages are lost", "folder", d.dir)
	return d.lock.Close()
}

// noMemory is the reason why a stored page is not returned: no host memory became free in time.
const noMemory = "no memory to load into"
