package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sparrow/internal/filelock"
	"sparrow/weight"
)

// DefaultEndpoint is the default hub, DefaultJobs the default number of parallel downloads.
const (
	DefaultEndpoint = "https://huggingface.co"
	DefaultJobs     = 8
	maxJobs         = 64
)

// Options holds the parameters of a [Puller].
type Options struct {
	Cache    Cache
	Endpoint string // address of the hub; empty means DefaultEndpoint
	Token    string // access token, sent only to the endpoint; empty for none
	Jobs     int    // maximum number of parallel downloads; 0 means DefaultJobs
	Version  string // version of this program, for the header User-Agent
	// Progress is called as bytes arrive; calls do not overlap. done includes bytes that were already in the cache.
	Progress func(done, total int64)
	// Notice is called with messages for the user during a download; calls do not overlap.
	Notice func(text string)
}

// Puller downloads models into a cache.
type Puller struct {
	cache    Cache
	endpoint string // address without a trailing slash
	token    string
	version  string
	jobs     int
	client   *http.Client
	locker   locker
	tries    tries
	stall    time.Duration
	meter    *meter
	notices  sync.Mutex
	onNotice func(string)
}

// New returns a Puller. It sends no request.
func New(o Options) (*Puller, error) {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.Jobs == 0 {
		o.Jobs = DefaultJobs
	}
	if o.Jobs < 1 || o.Jobs > maxJobs {
		return nil, fmt.Errorf("hub: the number of parallel downloads is %d, want 1 to %d", o.Jobs, maxJobs)
	}
	u, err := checkEndpoint(o.Endpoint, o.Token)
	if err != nil {
		return nil, err
	}
	p := &Puller{cache: o.Cache, endpoint: strings.TrimRight(o.Endpoint, "/"), token: o.Token, version: o.Version,
		jobs: o.Jobs, client: newClient(u, o.Jobs), locker: filelock.Try, stall: stallTimeout,
		meter: &meter{report: o.Progress}, onNotice: o.Notice}
	p.tries = defaultTries(p.notice)
	return p, nil
}

// Download is the list of a model's files, before they are downloaded.
type Download struct {
	Name   Name
	Commit string
	Files  []File
	// Bytes is the size of all files; Missing is the number of bytes that are not in the cache.
	Bytes, Missing int64
	// Config is the text of config.json, Quant that of hf_quant_config.json or nil.
	Config, Quant []byte
	// Tensors lists the names of the tensors, if the model has an index.
	Tensors []string
	// Quants contains the selected GGUF model or, if none was selected, all GGUF models of the repository; Files is
	// then empty. It is nil for safetensors.
	Quants []Quant
	// Architecture is the architecture of the GGUF files, if the server reports it.
	Architecture string
	// texts holds the contents of files that were already downloaded, by hash.
	texts map[string][]byte
}

// Dir returns the path that [Puller.Pull] will return: the model's folder, or its first GGUF file.
func (p *Puller) Dir(d *Download) string {
	dir := p.cache.snapshot(d.Name, d.Commit)
	if len(d.Quants) == 1 {
		dir = filepath.Join(dir, filepath.FromSlash(d.Quants[0].Files[0]))
	}
	return dir
}

// Plan requests the list of files of a model, selects those that the engine reads and compares them with the cache. It
// does not write to the cache.
func (p *Puller) Plan(ctx context.Context, n Name) (*Download, error) {
	l, err := p.list(ctx, n)
	if err != nil {
		return nil, err
	}
	d := &Download{Name: n, Commit: l.commit, Architecture: l.architecture}
	if d.Quants, d.Files, err = l.chooseQuant(n); err != nil {
		return nil, err
	}
	if len(d.Quants) == 0 {
		if d.Files, d.texts, err = p.choose(ctx, n, l); err != nil {
			return nil, err
		}
	}
	d.Config, d.Quant = d.texts[l.files[configName].Hash], d.texts[l.files[quantName].Hash]
	if index, ok := d.texts[l.files[weight.IndexName].Hash]; ok {
		if d.Tensors, err = weight.IndexedTensors(n.Repo, index); err != nil {
			return nil, fmt.Errorf("hub: %w", err)
		}
	}
	for _, f := range d.Files {
		d.Bytes += f.Size
		if !p.cache.has(n, f) {
			d.Missing += f.Size - p.cache.partial(n, f)
		}
	}
	return d, nil
}

// Pull downloads the missing files, several at a time, and returns the model's folder or GGUF file. If a download
// fails, the others are cancelled. Received bytes are kept, and a later call continues after them.
func (p *Puller) Pull(ctx context.Context, d *Download) (dir string, err error) {
	p.meter.start(d.Bytes)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan File)
	var workers sync.WaitGroup
	for range min(p.jobs, len(d.Files)) {
		workers.Go(func() {
			for f := range todo {
				if err := p.fetch(ctx, d, f, d.texts[f.Hash]); err != nil {
					cancel(err) // later errors are ignored
					return
				}
			}
		})
	}
feed:
	for _, f := range d.Files {
		select {
		case todo <- f:
		case <-ctx.Done():
			break feed
		}
	}
	close(todo)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	if err := p.cache.writeRef(d.Name, d.Commit); err != nil {
		return "", err
	}
	return p.Dir(d), nil
}

// explain adds advice for the user to the error of a request.
func (p *Puller) explain(n Name, err error) error {
	var s *statusError
	if !errors.As(err, &s) {
		return err
	}
	page := p.endpoint + "/" + n.Repo
	switch {
	case s.code == "GatedRepo" || s.status == http.StatusForbidden:
		return fmt.Errorf("%w: %s requires that you accept its terms: accept them at %s and set HF_TOKEN "+
			"to a token of that account (%w)", ErrDenied, n, page, s)
	case s.code == "RevisionNotFound":
		return fmt.Errorf("%w: %s has no branch, tag or commit %q (%w)", ErrNotFound, n.Repo, n.Revision, s)
	case s.status == http.StatusUnauthorized && p.token == "":
		return fmt.Errorf("%w: %s does not exist, or it is private; check the name, or set HF_TOKEN (%w)", ErrDenied,
			n, s)
	case s.status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s does not exist, or the token is not allowed to read it (%w)", ErrDenied, n, s)
	case s.status == http.StatusNotFound || s.status == http.StatusGone:
		return fmt.Errorf("%w: %s does not exist at %s; check the spelling (%w)", ErrNotFound, n, page, s)
	}
	return err
}

func (p *Puller) notice(format string, args ...any) {
	if p.onNotice == nil {
		return
	}
	p.notices.Lock()
	defer p.notices.Unlock()
	p.onNotice(fmt.Sprintf(format, args...))
}

// meter adds up the progress of parallel downloads.
type meter struct {
	mu          sync.Mutex
	done, total int64
	report      func(done, total int64)
}

func (m *meter) start(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done, m.total = 0, total
}

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	if m.report != nil {
		m.report(m.done, m.total)
	}
}
