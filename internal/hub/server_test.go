package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testRepo   = "acme/Sparse-1"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	testToken  = "secret-token"
)

// testFile is a file of a model on the test server. Large files are stored elsewhere, as on a real hub.
type testFile struct {
	path  string
	data  []byte
	large bool
}

// record is a request that the test server handled.
type record struct {
	host  string // "hub" or "store"
	path  string
	rng   string
	token string
}

// testHub is a small hub: one server with lists and small files, and a second one, the store, for large files. Faults
// are functions that answer a request in place of the server if they return true; their argument tries counts the
// requests for the same path, from 1.
type testHub struct {
	t          *testing.T
	files      []testFile
	listed     func(list map[string]any) // changes the list of files
	hubFault   func(w http.ResponseWriter, r *http.Request, tries int) bool
	storeFault func(w http.ResponseWriter, r *http.Request, data []byte, tries int) bool
	needsToken bool
	etag       func(f testFile) string // returns the ETag that the store sends

	hub, store *httptest.Server
	mu         sync.Mutex
	seen       []record
	sent       map[string]int // bytes of each path that the store sent
}

func newTestHub(t *testing.T, files ...testFile) *testHub {
	h := &testHub{t: t, files: files, sent: map[string]int{}}
	h.etag = func(f testFile) string { return `"` + hashOf(f) + `"` }
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.store = httptest.NewServer(http.HandlerFunc(h.serveStore))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.store.Close)
	return h
}

// smallModel returns the files of a model with two shards, and many files that are not needed.
func smallModel() []testFile {
	index := `{"metadata":{},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`
	return []testFile{
		{path: ".gitattributes", data: []byte("x")},
		{path: "README.md", data: []byte("# read me")},
		{path: "config.json", data: []byte(`{"model_type":"sparse"}`)},
		{path: "generation_config.json", data: []byte(`{}`)},
		{path: "tokenizer.json", data: bytes.Repeat([]byte(`{"t":1}`), 2000), large: true},
		{path: "tokenizer_config.json", data: []byte(`{"c":1}`)},
		{path: "chat_template.jinja", data: []byte(`{{ messages }}`)},
		{path: "model.safetensors.index.json", data: []byte(index)},
		{path: "model-00001-of-00002.safetensors", data: pattern(300_000, 1), large: true},
		{path: "model-00002-of-00002.safetensors", data: pattern(200_000, 2), large: true},
		{path: "consolidated.safetensors", data: pattern(500_000, 3), large: true},
		{path: "original/model.safetensors", data: pattern(1000, 4), large: true},
		{path: "pytorch_model.bin", data: pattern(1000, 5), large: true},
		{path: "assets/chart.png", data: pattern(1000, 6), large: true},
	}
}

// neededFiles lists the files of smallModel that are downloaded.
var neededFiles = []string{"chat_template.jinja", "config.json", "generation_config.json",
	"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
	"tokenizer.json", "tokenizer_config.json"}

// pattern returns n pseudo-random bytes, so that parts of a file differ.
func pattern(n int, seed byte) []byte {
	b := make([]byte, 0, n+32)
	for sum := sha256.Sum256([]byte{seed}); len(b) < n; sum = sha256.Sum256(sum[:]) {
		b = append(b, sum[:]...)
	}
	return b[:n]
}

func hashOf(f testFile) string {
	if f.large {
		sum := sha256.Sum256(f.data)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(f.data), f.data))
	return hex.EncodeToString(sum[:])
}

func (h *testHub) note(host string, r *http.Request) (tries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, record{host, r.URL.Path, r.Header.Get("Range"), r.Header.Get("Authorization")})
	for _, s := range h.seen {
		if s.host == host && s.path == r.URL.Path {
			tries++
		}
	}
	return tries
}

// requests returns the requests to a host whose path has the given suffix.
func (h *testHub) requests(host, suffix string) []record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.seen), func(r record) bool {
		return r.host != host || !strings.HasSuffix(r.path, suffix)
	})
}

func (h *testHub) serveHub(w http.ResponseWriter, r *http.Request) {
	tries := h.note("hub", r)
	if h.hubFault != nil && h.hubFault(w, r, tries) {
		return
	}
	if h.needsToken && r.Header.Get("Authorization") != "Bearer "+testToken {
		w.Header().Set("X-Error-Code", "GatedRepo")
		http.Error(w, "gated", http.StatusForbidden)
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/"+testRepo+"/resolve/"+testCommit+"/"); ok {
		h.serveFile(w, r, name)
		return
	}
	const api = "/api/models/" + testRepo + "/revision/"
	switch r.URL.Path {
	case api + "main", api + "v1", api + testCommit:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(h.list())
	default:
		if strings.HasPrefix(r.URL.Path, api) {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
		}
		http.NotFound(w, r)
	}
}

func (h *testHub) list() map[string]any {
	var siblings []any
	for _, f := range h.files {
		s := map[string]any{"rfilename": f.path, "size": len(f.data), "blobId": hashOf(testFile{data: f.data})}
		if f.large {
			s["lfs"] = map[string]any{"sha256": hashOf(f), "size": len(f.data), "pointerSize": 134}
		}
		siblings = append(siblings, s)
	}
	l := map[string]any{"id": testRepo, "sha": testCommit, "siblings": siblings}
	if h.listed != nil {
		h.listed(l)
	}
	return l
}

func (h *testHub) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	for _, f := range h.files {
		if f.path != name {
			continue
		}
		if f.large {
			w.Header().Set("X-Linked-Etag", `"`+hashOf(f)+`"`)
			http.Redirect(w, r, h.store.URL+"/objects/"+hashOf(f)+"?signature=abc", http.StatusFound)
			return
		}
		w.Header().Set("ETag", `"`+hashOf(f)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
		return
	}
	http.NotFound(w, r)
}

func (h *testHub) serveStore(w http.ResponseWriter, r *http.Request) {
	tries := h.note("store", r)
	for _, f := range h.files {
		if !f.large || r.URL.Path != "/objects/"+hashOf(f) {
			continue
		}
		counted := &countingWriter{ResponseWriter: w, h: h, path: f.path}
		if h.storeFault != nil && h.storeFault(counted, r, f.data, tries) {
			return
		}
		w.Header().Set("ETag", h.etag(f))
		http.ServeContent(counted, r, "", time.Time{}, bytes.NewReader(f.data))
		return
	}
	http.NotFound(w, r)
}

type countingWriter struct {
	http.ResponseWriter
	h    *testHub
	path string
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.sent[w.path] += n
	return n, err
}

// cutAfter returns a fault that sends n bytes of the response and closes the connection.
func cutAfter(n int) func(http.ResponseWriter, *http.Request, []byte, int) bool {
	return func(w http.ResponseWriter, r *http.Request, data []byte, _ int) bool {
		var from int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		if len(data)-from <= n {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write(data[from : from+n])
		panic(http.ErrAbortHandler)
	}
}

// puller returns a Puller that downloads from h into dir without real pauses; pauses are recorded.
func (h *testHub) puller(dir string, pauses *[]time.Duration) *Puller {
	h.t.Helper()
	p, err := New(Options{Cache: Cache{dir}, Endpoint: h.hub.URL, Token: testToken, Jobs: 3, Version: "test"})
	if err != nil {
		h.t.Fatal(err)
	}
	var mu sync.Mutex
	p.tries.sleep = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		if pauses != nil {
			*pauses = append(*pauses, d)
		}
		return ctx.Err()
	}
	return p
}

// pull downloads testRepo and returns its folder.
func (h *testHub) pull(p *Puller) (string, error) {
	n, err := ParseName(testRepo)
	if err != nil {
		h.t.Fatal(err)
	}
	d, err := p.Plan(context.Background(), n)
	if err != nil {
		return "", err
	}
	return p.Pull(context.Background(), d)
}
