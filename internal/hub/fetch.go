package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"sparrow/internal/filelock"
)

// mismatches is the number of downloads of a file with a wrong hash after which the download fails.
const mismatches = 2

// fileURL returns the URL of a file of a commit.
func (p *Puller) fileURL(n Name, commit string, f File) string {
	parts := strings.Split(f.Path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return p.endpoint + "/" + n.Repo + "/resolve/" + commit + "/" + strings.Join(parts, "/")
}

// text returns the contents of a small file, from the cache or from the server.
func (p *Puller) text(ctx context.Context, n Name, commit string, f File) ([]byte, error) {
	if f.Size > maxText {
		return nil, fmt.Errorf("%w: %s of %s has %d bytes, want at most %d", ErrServer, f.Path, n, f.Size, maxText)
	}
	if p.cache.has(n, f) {
		if text, err := os.ReadFile(p.cache.blob(n, f.Hash)); err == nil {
			return text, nil
		}
	}
	text, err := p.get(ctx, p.fileURL(n, commit, f), f.Size)
	if err != nil {
		return nil, p.explain(n, err)
	}
	sum := newDigest(f)
	sum.Write(text)
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.Hash {
		return nil, fmt.Errorf("%w: %s of %s has the hash %s, but the server lists %s", ErrServer, f.Path, n, got,
			f.Hash)
	}
	return text, nil
}

// has reports whether a complete blob is in the cache. A blob gets its name only after its hash was verified, so
// comparing the size is sufficient.
func (c Cache) has(n Name, f File) bool {
	info, err := os.Stat(c.blob(n, f.Hash))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size
}

// partial returns the size of the incomplete blob of an earlier download, in bytes.
func (c Cache) partial(n Name, f File) int64 {
	info, err := os.Stat(c.blob(n, f.Hash) + incomplete)
	if err != nil || info.Size() > f.Size {
		return 0
	}
	return info.Size()
}

// incomplete is the suffix of the file name of an incomplete blob.
const incomplete = ".incomplete"

// fetch downloads one file into the cache. known holds its contents if they were already downloaded.
func (p *Puller) fetch(ctx context.Context, d *Download, f File, known []byte) (err error) {
	if p.cache.has(d.Name, f) { // without a lock, so that a read-only cache can be used
		p.meter.add(f.Size)
		return p.cache.link(d.Name, d.Commit, f)
	}
	at := p.cache.blob(d.Name, f.Hash)
	part := at + incomplete
	unlock, err := p.locker.take(ctx, p.cache.lock(d.Name, f.Hash), func() {
		p.notice("%s is being downloaded by another process; waiting for it", f.Path)
	})
	switch {
	case errors.Is(err, filelock.ErrNone):
		// Two downloads must not write to one file, and files cannot be locked here, so this download uses a new file.
		p.notice("%s: %v, so an interrupted download of it restarts from the beginning", f.Path, filelock.ErrNone)
		part = temporaryName(at) + incomplete
		defer os.Remove(part) // no effect after the file was renamed
	case err != nil:
		return err
	default:
		defer func() { err = errors.Join(err, unlock()) }()
	}
	if p.cache.has(d.Name, f) {
		p.meter.add(f.Size)
		return p.cache.link(d.Name, d.Commit, f)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	t := &transfer{p: p, d: d, f: f}
	if err := t.run(ctx, part, known); err != nil {
		return err
	}
	if err := os.Rename(part, at); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := keepDigest(at, f); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return p.cache.link(d.Name, d.Commit, f)
}

// transfer is the download of one file into its incomplete blob. Only one goroutine uses it.
type transfer struct {
	p    *Puller
	d    *Download
	f    File
	file *os.File
	sum  hash.Hash
	done int64  // bytes written to the file and to the hash
	etag string // ETag of the response from which this process received bytes
}

// run downloads a file and verifies its hash. After an error, a later run continues the partial file.
func (t *transfer) run(ctx context.Context, path string, known []byte) (err error) {
	if t.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	defer func() { err = errors.Join(err, t.file.Close()) }()
	if err := t.resume(known); err != nil {
		return err
	}
	for wrong := 0; ; {
		if err := t.p.tries.repeat(ctx, func() (bool, error) { return t.attempt(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", t.f.Path, t.p.explain(t.d.Name, err))
		}
		got := hex.EncodeToString(t.sum.Sum(nil))
		if got == t.f.Hash {
			break
		}
		// The part from an earlier run may be damaged, so download the whole file once more.
		if err := t.restart(); err != nil {
			return err
		}
		if wrong++; wrong >= mismatches {
			return fmt.Errorf("%w: %s was downloaded with the hash %s, but the server lists %s; the download was "+
				"deleted", ErrServer, t.f.Path, got, t.f.Hash)
		}
		t.p.notice("%s arrived damaged and is downloaded again", t.f.Path)
	}
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// resume hashes the part of the file from an earlier run. If it is longer than the listed size, it restarts the
// download.
func (t *transfer) resume(known []byte) error {
	if known != nil {
		if err := t.restart(); err != nil {
			return err
		}
		return t.write(known)
	}
	t.sum = newDigest(t.f)
	n, err := io.Copy(t.sum, io.LimitReader(t.file, t.f.Size+1))
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if n > t.f.Size {
		return t.restart()
	}
	t.done = n
	t.p.meter.add(n)
	return nil
}

// restart truncates the file to zero bytes.
func (t *transfer) restart() error {
	if err := t.file.Truncate(0); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	t.p.meter.add(-t.done)
	t.done, t.sum, t.etag = 0, newDigest(t.f), ""
	return nil
}

func (t *transfer) write(b []byte) error {
	if _, err := t.file.Write(b); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	t.sum.Write(b)
	t.done += int64(len(b))
	t.p.meter.add(int64(len(b)))
	return nil
}

// attempt requests the remaining bytes of the file from the hub, which redirects to an address that expires.
func (t *transfer) attempt(ctx context.Context) (progress bool, err error) {
	if t.done == t.f.Size {
		return true, nil
	}
	header := http.Header{}
	if t.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", t.done))
		if t.etag != "" {
			header.Set("If-Range", t.etag)
		}
	}
	watched, watch := t.p.watch(ctx)
	defer watch.stop()
	resp, err := t.p.send(watched, t.p.fileURL(t.d.Name, t.d.Commit, t.f), header)
	if status := (*statusError)(nil); errors.As(err, &status) &&
		status.status == http.StatusRequestedRangeNotSatisfiable && t.done > 0 {
		// The server's file is shorter than the local part, so one of them is wrong.
		return false, errors.Join(&again{err: fmt.Errorf("%w: %w", ErrServer, err)}, t.restart())
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if err := t.accept(resp); err != nil {
		return false, err
	}
	before := t.done
	err = t.copy(&watchedReader{resp.Body, watch})
	if a := (*again)(nil); errors.As(err, &a) {
		a.err = watch.cause(a.err)
	}
	return t.done > before, err
}

// accept checks the header of a response: its contents continue the local part, or the download restarts.
func (t *transfer) accept(resp *http.Response) error {
	etag := resp.Header.Get("ETag")
	changed := t.etag != "" && etag != t.etag
	if resp.StatusCode == http.StatusOK || changed {
		if t.done > 0 {
			if err := t.restart(); err != nil {
				return err
			}
		}
		if resp.StatusCode != http.StatusOK {
			return &again{err: fmt.Errorf("%w: the file changed on the server during the download; run the command "+
				"again", ErrServer)}
		}
	} else if start, ok := rangeStart(resp.Header.Get("Content-Range"), t.f.Size); !ok || start != t.done {
		return errors.Join(&again{err: fmt.Errorf("%w: bytes from %d were requested, but the server sent %.100q",
			ErrServer, t.done, resp.Header.Get("Content-Range"))}, t.restart())
	}
	if t.etag = etag; strings.HasPrefix(etag, "W/") {
		t.etag = "" // files with the same weak ETag may differ
	}
	return nil
}

// copy writes the response to the file, up to the listed size.
func (t *transfer) copy(r io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if int64(n) > t.f.Size-t.done {
			return errors.Join(fmt.Errorf("%w: the server sent more than the %d bytes that it lists", ErrServer,
				t.f.Size), t.restart())
		}
		if n > 0 {
			if err := t.write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case t.done == t.f.Size && (err == nil || errors.Is(err, io.EOF)):
			if err == nil {
				continue // all bytes were received; only the end may follow
			}
			return nil
		case errors.Is(err, io.EOF):
			return &again{err: fmt.Errorf("%w: the connection ended after %d of %d bytes", ErrUnavailable, t.done,
				t.f.Size)}
		case err != nil:
			return &again{err: fmt.Errorf("%w: after %d of %d bytes: %w", ErrUnavailable, t.done, t.f.Size, err)}
		}
	}
}

// rangeStart parses a Content-Range such as "bytes 5-9/10", whose total must be the listed size.
func rangeStart(text string, size int64) (start int64, ok bool) {
	var end, total int64
	if strings.HasSuffix(text, "/*") {
		text = strings.TrimSuffix(text, "*") + fmt.Sprint(size)
	}
	n, err := fmt.Sscanf(text, "bytes %d-%d/%d", &start, &end, &total)
	return start, err == nil && n == 3 && total == size && start >= 0 && end < size
}
