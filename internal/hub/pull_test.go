package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sparrow/internal/filelock"
)

// contents returns the files and links in a folder and its subfolders, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if e.Type() == fs.ModeSymlink {
			to, err := os.Readlink(path)
			all[rel] = "-> " + to
			return err
		}
		text, err := os.ReadFile(path)
		all[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkModel checks that a downloaded model has the files of the server.
func checkModel(t *testing.T, h *testHub, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, neededFiles) {
		t.Errorf("files %v, want %v", names, neededFiles)
	}
	for _, f := range h.files {
		if !slices.Contains(neededFiles, f.path) {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, f.path)); err != nil || !bytes.Equal(got, f.data) {
			t.Errorf("%s: %d bytes, want %d (%v)", f.path, len(got), len(f.data), err)
		}
	}
}

func TestPullMakesTheLayoutOfHuggingFace(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	root := t.TempDir()
	p := h.puller(root, nil)
	var last, total int64
	p.meter.report = func(d, t int64) { last, total = d, t }
	dir, err := h.pull(p)
	if err != nil {
		t.Fatal(err)
	}
	const model = "models--acme--Sparse-1"
	want := map[string]string{model + "/refs/main": testCommit}
	for _, f := range h.files {
		if slices.Contains(neededFiles, f.path) {
			want[model+"/blobs/"+hashOf(f)] = string(f.data)
			want[model+"/snapshots/"+testCommit+"/"+f.path] = "-> ../../blobs/" + hashOf(f)
		}
		if blob := model + "/blobs/" + hashOf(f); slices.Contains(neededFiles, f.path) &&
			strings.HasSuffix(f.path, ".safetensors") { // the digest of weights is stored next to them
			info, err := os.Stat(filepath.Join(root, blob))
			if err != nil {
				t.Fatal(err)
			}
			want[blob+".digest"] = fmt.Sprintf("sha256 %s size %d modified %d\n", hashOf(f), len(f.data),
				info.ModTime().UnixNano())
		}
	}
	got := contents(t, root)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %.80q, want %.80q", name, got[name], text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !strings.HasPrefix(name, ".locks/"+model+"/") {
			t.Errorf("%s is there as well", name)
		}
	}
	if dir != filepath.Join(root, model, "snapshots", testCommit) || last != total || total < 500_000 {
		t.Errorf("folder %s, progress %d of %d", dir, last, total)
	}
	found, err := Cache{root}.Find(Name{Repo: testRepo, Revision: "main"})
	if err != nil || found != dir {
		t.Errorf("found %q, %v", found, err)
	}
	if found, err = (Cache{root}).Find(Name{Repo: testRepo, Revision: testCommit}); err != nil || found != dir {
		t.Errorf("by commit: found %q, %v", found, err)
	}

	// A second download requests only the list of files.
	before := len(h.requests("hub", "")) + len(h.requests("store", ""))
	if _, err := h.pull(h.puller(root, nil)); err != nil {
		t.Fatal(err)
	}
	if n := len(h.requests("hub", "")) + len(h.requests("store", "")) - before; n != 1 {
		t.Errorf("%d requests for a model that is there", n)
	}
}

func TestPlanWritesNothing(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	root := filepath.Join(t.TempDir(), "cache")
	d, err := h.puller(root, nil).Plan(context.Background(), Name{Repo: testRepo, Revision: "main"})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, f := range h.files {
		if slices.Contains(neededFiles, f.path) {
			sum += int64(len(f.data))
		}
	}
	if len(d.Files) != len(neededFiles) || d.Bytes != sum || d.Missing != sum ||
		string(d.Config) != `{"model_type":"sparse"}` {
		t.Errorf("%d files, %d bytes, %d missing of %d, config %s", len(d.Files), d.Bytes, d.Missing, sum, d.Config)
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cache was made: %v", err)
	}
}

func TestCutConnectionsResume(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	h.storeFault = cutAfter(70_000)
	dir, err := h.pull(h.puller(t.TempDir(), nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)
	var ranges []string
	for _, r := range h.requests("store", hashOf(h.files[8])) {
		ranges = append(ranges, r.rng)
	}
	// How many bytes of a broken response arrive depends on the network; the next request always continues after them.
	if len(ranges) < 5 || ranges[0] != "" || slices.Contains(ranges[1:], "") {
		t.Errorf("ranges %q", ranges)
	}
	if sent := h.sent["model-00001-of-00002.safetensors"]; sent > 2*300_000 {
		t.Errorf("%d bytes were sent for a file of 300000", sent)
	}
}

// After a limited number of attempts without progress the download fails, and the next run continues it.
func TestAFailedPullIsContinued(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	root := t.TempDir()
	whole := cutAfter(100_000)
	h.storeFault = func(w http.ResponseWriter, r *http.Request, data []byte, tries int) bool {
		if r.Header.Get("Range") != "" {
			http.Error(w, "broken", http.StatusBadGateway)
			return true
		}
		return whole(w, r, data, tries)
	}
	var pauses []time.Duration
	p := h.puller(root, &pauses)
	p.jobs = 1
	if _, err := h.pull(p); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "502") {
		t.Fatalf("%v", err)
	}
	if len(pauses) != 5 {
		t.Errorf("pauses %v", pauses)
	}
	for i, d := range pauses {
		if most := time.Second << i; d < most/2 || d > most {
			t.Errorf("pause %d is %v, want %v to %v", i, d, most/2, most)
		}
	}
	n := Name{Repo: testRepo, Revision: "main"}
	if _, err := (Cache{root}).Find(n); !errors.Is(err, ErrNotCached) {
		t.Errorf("half a model is found: %v", err)
	}
	part, err := os.ReadFile(Cache{root}.blob(n, hashOf(h.files[8])) + incomplete)
	if err != nil || len(part) == 0 || !bytes.HasPrefix(h.files[8].data, part) {
		t.Fatalf("%d bytes were kept, %v", len(part), err)
	}
	h.storeFault = nil
	d, err := h.puller(root, nil).Plan(context.Background(), n)
	if err != nil || d.Missing > d.Bytes-int64(len(part)) {
		t.Errorf("%d of %d bytes missing, %v", d.Missing, d.Bytes, err)
	}
	dir, err := h.pull(h.puller(root, nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)
	last := h.requests("store", hashOf(h.files[8]))
	if got := last[len(last)-1].rng; got != fmt.Sprintf("bytes=%d-", len(part)) {
		t.Errorf("the last request has the range %q", got)
	}
}

func TestWrongBytesAreFetchedAgainAndNeverKept(t *testing.T) {
	wrong := func(w http.ResponseWriter, data []byte) {
		bad := bytes.Clone(data)
		bad[len(bad)/2] ^= 1
		w.Write(bad)
	}
	h := newTestHub(t, smallModel()...)
	h.storeFault = func(w http.ResponseWriter, _ *http.Request, data []byte, tries int) bool {
		if tries == 1 {
			wrong(w, data)
		}
		return tries == 1
	}
	dir, err := h.pull(h.puller(t.TempDir(), nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)

	h = newTestHub(t, smallModel()...)
	h.storeFault = func(w http.ResponseWriter, _ *http.Request, data []byte, _ int) bool { wrong(w, data); return true }
	root := t.TempDir()
	if _, err := h.pull(h.puller(root, nil)); !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "hash") {
		t.Errorf("%v", err)
	}
	for name, text := range contents(t, root) {
		if strings.Contains(name, "blobs") && !strings.HasSuffix(name, incomplete) && len(text) > 1000 {
			t.Errorf("%s was kept", name)
		}
	}
	if n := len(h.requests("store", hashOf(h.files[8]))); n > mismatches {
		t.Errorf("it was requested %d times", n)
	}
}

// A partial file with damaged contents is detected by the hash and downloaded from its beginning.
func TestADamagedPartIsFetchedAgain(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	root := t.TempDir()
	n := Name{Repo: testRepo, Revision: "main"}
	for i, text := range map[int][]byte{8: make([]byte, 1000), 9: make([]byte, 300_000)} { // the second is too long
		path := Cache{root}.blob(n, hashOf(h.files[i])) + incomplete
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := h.pull(h.puller(root, nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)
}

func TestBusyServersAreAskedAgainAsTheySay(t *testing.T) {
	for _, c := range []struct {
		name, after string
		status      int
		least, most time.Duration
		fails       bool
	}{
		{"seconds", "7", 429, 7 * time.Second, 7 * time.Second, false},
		{"a date", "", 503, time.Second, 110 * time.Second, false}, // the date minus the time of the response
		{"nothing", "", 500, 500 * time.Millisecond, 2 * time.Second, false},
		{"nonsense", "soon", 503, 500 * time.Millisecond, 2 * time.Second, false},
		{"longer than anybody waits", "86400", 429, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestHub(t, smallModel()...)
			fault := func(w http.ResponseWriter, tries int) bool {
				if tries > 1 {
					return false
				}
				after := c.after
				if c.name == "a date" {
					after = time.Now().Add(110 * time.Second).UTC().Format(http.TimeFormat)
				}
				w.Header().Set("Retry-After", after)
				http.Error(w, "later", c.status)
				return true
			}
			h.hubFault = func(w http.ResponseWriter, _ *http.Request, tries int) bool { return fault(w, tries) }
			h.storeFault = func(w http.ResponseWriter, _ *http.Request, _ []byte, tries int) bool {
				return fault(w, tries)
			}
			var pauses []time.Duration
			p := h.puller(t.TempDir(), &pauses)
			var notices []string
			p.onNotice = func(text string) { notices = append(notices, text) }
			dir, err := h.pull(p)
			if len(notices) != len(pauses) || len(notices) > 0 && !strings.Contains(notices[0], "retrying in") {
				t.Errorf("%d pauses and the notices %q", len(pauses), notices)
			}
			if c.fails {
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "24h") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkModel(t, h, dir)
			if len(pauses) < 5 || slices.Min(pauses) < c.least || slices.Max(pauses) > c.most {
				t.Errorf("pauses %v", pauses)
			}
		})
	}
}

func TestTheTokenGoesToTheHubAlone(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	h.needsToken = true
	if _, err := h.pull(h.puller(t.TempDir(), nil)); err != nil {
		t.Fatal(err)
	}
	store := h.requests("store", "")
	for _, r := range store {
		if r.token != "" {
			t.Errorf("%s got %q", r.path, r.token)
		}
	}
	if len(store) != 3 {
		t.Errorf("%d requests to the store", len(store))
	}
	// The token is also sent after a redirect inside the hub.
	h = newTestHub(t, smallModel()...)
	h.needsToken = true
	h.hubFault = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if strings.HasSuffix(r.URL.Path, "config.json") && r.URL.RawQuery == "" {
			http.Redirect(w, r, r.URL.Path+"?moved", http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	if _, err := h.pull(h.puller(t.TempDir(), nil)); err != nil {
		t.Fatal(err)
	}
}

func TestRedirectsAreBoundedAndStayEncrypted(t *testing.T) {
	plain := newTestHub(t, smallModel()...)
	tls := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "config.json") {
			http.Redirect(w, r, plain.store.URL+"/objects/x", http.StatusFound)
			return
		}
		plain.serveHub(w, r)
	}))
	defer tls.Close()
	p, err := New(Options{Cache: Cache{t.TempDir()}, Endpoint: tls.URL, Token: testToken})
	if err != nil {
		t.Fatal(err)
	}
	p.client.Transport.(*http.Transport).TLSClientConfig = tls.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := plain.pull(p); !errors.Is(err, ErrServer) || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("%v", err)
	}
	h := newTestHub(t, smallModel()...)
	h.storeFault = func(w http.ResponseWriter, r *http.Request, _ []byte, _ int) bool {
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
		return true
	}
	if _, err := h.pull(h.puller(t.TempDir(), nil)); !errors.Is(err, ErrServer) ||
		!strings.Contains(err.Error(), "redirected more than") {
		t.Errorf("%v", err)
	}
}

func TestWithoutContentLengthTheListedSizeCounts(t *testing.T) {
	chunked := func(w http.ResponseWriter, data []byte) {
		for len(data) > 0 {
			n := min(len(data), 10_000)
			w.Write(data[:n])
			w.(*countingWriter).ResponseWriter.(http.Flusher).Flush()
			data = data[n:]
		}
	}
	h := newTestHub(t, smallModel()...)
	h.storeFault = func(w http.ResponseWriter, _ *http.Request, data []byte, tries int) bool {
		switch tries {
		case 1: // the body ends early, and the connection does not show it
			chunked(w, data[:len(data)/2])
			return true
		case 2: // the whole file is sent, although only its rest was requested
			chunked(w, data)
			return true
		}
		return false
	}
	dir, err := h.pull(h.puller(t.TempDir(), nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)

	h = newTestHub(t, smallModel()...)
	h.storeFault = func(w http.ResponseWriter, _ *http.Request, data []byte, _ int) bool {
		chunked(w, append(bytes.Clone(data), "and more"...))
		return true
	}
	if _, err := h.pull(h.puller(t.TempDir(), nil)); !errors.Is(err, ErrServer) ||
		!strings.Contains(err.Error(), "sent more than") {
		t.Errorf("%v", err)
	}
}

// If the store's object changes between two parts of a download, parts of different objects are never joined, whether
// or not the server supports If-Range.
func TestAChangedObjectIsFetchedFromItsBeginning(t *testing.T) {
	for _, understands := range []bool{true, false} {
		h := newTestHub(t, smallModel()...)
		h.storeFault = func(w http.ResponseWriter, r *http.Request, data []byte, tries int) bool {
			var from int
			fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
			switch {
			case tries == 1: // half of another object
				w.Header().Set("ETag", `"old"`)
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Write(make([]byte, len(data)/2))
				panic(http.ErrAbortHandler)
			case understands && r.Header.Get("If-Range") == `"old"`:
				w.Header().Set("ETag", `"new"`)
				w.Write(data)
			default:
				if from == 0 {
					return false
				}
				w.Header().Set("ETag", `"new"`)
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
				w.WriteHeader(http.StatusPartialContent)
				w.Write(data[from:])
			}
			return true
		}
		dir, err := h.pull(h.puller(t.TempDir(), nil))
		if err != nil {
			t.Fatal(err)
		}
		checkModel(t, h, dir)
		for i := 8; i < 10; i++ { // no request was sent for the rest of another object
			want := 2
			if !understands {
				want = 3
			}
			if n := len(h.requests("store", hashOf(h.files[i]))); n != want {
				t.Errorf("If-Range %v: %d requests, want %d", understands, n, want)
			}
		}
	}
}

func TestRangesThatWereNotAskedForAreRefused(t *testing.T) {
	for _, c := range []string{"bytes 0-299999/300000", "bytes 1-5/300000", "", "bytes x", "bytes 70000-299999/1"} {
		h := newTestHub(t, smallModel()...)
		h.storeFault = func(w http.ResponseWriter, r *http.Request, data []byte, tries int) bool {
			switch {
			case tries == 1:
				return cutAfter(70_000)(w, r, data, tries)
			case tries == 2 && r.Header.Get("Range") != "":
				w.Header().Set("Content-Range", c)
				w.WriteHeader(http.StatusPartialContent)
				w.Write(data[:1000])
				return true
			}
			return false
		}
		dir, err := h.pull(h.puller(t.TempDir(), nil))
		if err != nil {
			t.Fatalf("%q: %v", c, err)
		}
		checkModel(t, h, dir)
	}
}

func TestAStalledConnectionIsGivenUp(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	release := make(chan struct{})
	defer close(release)
	h.storeFault = func(w http.ResponseWriter, r *http.Request, data []byte, tries int) bool {
		if tries > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:1000])
		w.(*countingWriter).ResponseWriter.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}
	p := h.puller(t.TempDir(), nil)
	p.stall, p.tries.most = 100*time.Millisecond, 1<<20 // other files may also stall on a busy machine
	dir, err := h.pull(p)
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)
}

func TestHostileListsAreRefused(t *testing.T) {
	sibling := func(name string) func(map[string]any) {
		return func(l map[string]any) {
			l["siblings"] = append(l["siblings"].([]any), map[string]any{"rfilename": name, "size": 1,
				"blobId": strings.Repeat("a", 40)})
		}
	}
	change := func(i int, key string, v any) func(map[string]any) {
		return func(l map[string]any) { l["siblings"].([]any)[i].(map[string]any)[key] = v }
	}
	cases := map[string]func(map[string]any){
		"a commit that is a path": func(l map[string]any) { l["sha"] = "../../../../etc" },
		"no commit":               func(l map[string]any) { delete(l, "sha") },
		"upper case":              func(l map[string]any) { l["sha"] = strings.ToUpper(testCommit) },
		"a name twice":            sibling("config.json"),
		"no size":                 change(2, "size", nil),
		"a negative size":         change(2, "size", -1),
		"a huge size":             change(8, "lfs", map[string]any{"sha256": strings.Repeat("a", 64), "size": 1 << 60}),
		"a hash that is a path":   change(2, "blobId", "../../../x"),
		"a short hash":            change(8, "lfs", map[string]any{"sha256": "abc", "size": 5}),
		"a hash in upper case":    change(2, "blobId", strings.Repeat("A", 40)),
	}
	for _, name := range []string{"../x", "a/../../x", "/etc/passwd", `..\x`, `C:\x`, "c:x", "a//b", "./x", "",
		"a\x00b", "a\nb", "..", "weights/../../../model.safetensors"} {
		cases[fmt.Sprintf("a file named %q", name)] = sibling(name)
	}
	for name, listed := range cases {
		t.Run(name, func(t *testing.T) {
			h := newTestHub(t, smallModel()...)
			h.listed = listed
			root := filepath.Join(t.TempDir(), "cache")
			if _, err := h.pull(h.puller(root, nil)); !errors.Is(err, ErrServer) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

func TestHostileIndexesAreRefused(t *testing.T) {
	for _, shard := range []string{"../../x.safetensors", "/x.safetensors", `..\\x.safetensors`, "gone.safetensors",
		"pytorch_model.bin", "original/model.safetensors"} {
		files := smallModel()
		files[7].data = []byte(`{"weight_map":{"a":"` + shard + `"}}`)
		h := newTestHub(t, files...)
		root := filepath.Join(t.TempDir(), "cache")
		if _, err := h.pull(h.puller(root, nil)); err == nil {
			t.Errorf("%s was accepted", shard)
		}
		if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was written: %v", shard, err)
		}
	}
}

func TestModelsThatCannotBeServedAreNamed(t *testing.T) {
	only := func(names ...string) []testFile {
		return slices.DeleteFunc(smallModel(), func(f testFile) bool { return !slices.Contains(names, f.path) })
	}
	for want, files := range map[string][]testFile{
		"has no config.json": only("README.md"),
		"*.bin files":        only("config.json", "pytorch_model.bin"),
		"holds 2": only("config.json", "model-00001-of-00002.safetensors",
			"model-00002-of-00002.safetensors"),
	} {
		h := newTestHub(t, files...)
		if _, err := h.pull(h.puller(t.TempDir(), nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A repository with a single weight file and no index is a model.
	h := newTestHub(t, only("config.json", "consolidated.safetensors", "original/model.safetensors")...)
	if dir, err := h.pull(h.puller(t.TempDir(), nil)); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(filepath.Join(dir, "consolidated.safetensors")); err != nil {
		t.Error(err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name, code, token string
		status            int
		kind              error
		want              string
	}{
		{"gated", "GatedRepo", testToken, 403, ErrDenied, "accept them at"},
		{"gated without a token", "GatedRepo", "", 401, ErrDenied, "HF_TOKEN"},
		{"private or not there", "", "", 401, ErrDenied, "set HF_TOKEN"},
		{"a token without rights", "", testToken, 401, ErrDenied, "the token is not allowed"},
		{"not there", "RepoNotFound", testToken, 404, ErrNotFound, "check the spelling"},
		{"no such branch", "RevisionNotFound", testToken, 404, ErrNotFound, `"main"`},
		{"something else", "", testToken, 418, nil, "418"},
	} {
		h := newTestHub(t, smallModel()...)
		h.hubFault = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("X-Error-Code", c.code)
			http.Error(w, "no", c.status)
			return true
		}
		p := h.puller(t.TempDir(), nil)
		p.token = c.token
		_, err := h.pull(p)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.kind != nil && !errors.Is(err, c.kind) ||
			strings.Contains(err.Error(), testToken) {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := len(h.requests("hub", "")); n != 1 {
			t.Errorf("%s: %d requests", c.name, n)
		}
	}
}

// Two concurrent downloads of one model into one cache request each file once.
func TestTwoPullsAtOnceFetchEachFileOnce(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	h.storeFault = func(http.ResponseWriter, *http.Request, []byte, int) bool {
		time.Sleep(50 * time.Millisecond) // long enough for both downloads to request it
		return false
	}
	root := t.TempDir()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if dir, err := h.pull(h.puller(root, nil)); err != nil {
				t.Error(err)
			} else {
				checkModel(t, h, dir)
			}
		})
	}
	wg.Wait()
	for _, r := range h.requests("store", "") {
		if n := len(h.requests("store", r.path)); n != 1 {
			t.Errorf("%s was fetched %d times", r.path, n)
		}
	}
}

func TestALockOfAnotherProcessIsWaitedFor(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	root := t.TempDir()
	n := Name{Repo: testRepo, Revision: "main"}
	unlock, err := locker(filelock.Try).take(context.Background(), Cache{root}.lock(n, hashOf(h.files[8])),
		func() { t.Error("not free") })
	if err != nil {
		t.Fatal(err)
	}
	p := h.puller(root, nil)
	waits := make(chan string, 10)
	p.onNotice = func(text string) { waits <- text }
	done := make(chan error, 1)
	go func() { _, err := h.pull(p); done <- err }()
	if text := <-waits; !strings.Contains(text, h.files[8].path) {
		t.Errorf("%q", text)
	}
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, p.cache.snapshot(n, testCommit))
}

// On a file system without locks, two concurrent downloads both request the files, and neither damages the files of the
// other.
func TestFileSystemsWithoutLocks(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	h.storeFault = cutAfter(70_000)
	root := t.TempDir()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			p := h.puller(root, nil)
			p.locker = func(*os.File) (bool, error) { return false, filelock.ErrNone }
			told := ""
			p.onNotice = func(text string) { told += text }
			dir, err := h.pull(p)
			if err != nil || !strings.Contains(told, "has no locks") {
				t.Errorf("%v, and it says %q", err, told)
				return
			}
			checkModel(t, h, dir)
		})
	}
	wg.Wait()
	for name := range contents(t, root) {
		if strings.HasSuffix(name, incomplete) {
			t.Errorf("%s was left", name)
		}
	}
}

func TestCancellingEndsTheDownloadAndKeepsWhatCame(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	ctx, cancel := context.WithCancel(context.Background())
	var healthy atomic.Bool
	h.storeFault = func(w http.ResponseWriter, r *http.Request, data []byte, _ int) bool {
		if healthy.Load() {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:5000])
		w.(*countingWriter).ResponseWriter.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	root := t.TempDir()
	p := h.puller(root, nil)
	p.meter.report = func(done, _ int64) {
		if done > 10_000 {
			cancel()
		}
	}
	d, err := p.Plan(ctx, Name{Repo: testRepo, Revision: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pull(ctx, d); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	kept := 0
	for name, text := range contents(t, root) {
		if strings.HasSuffix(name, incomplete) {
			kept += len(text)
		}
	}
	if kept < 5000 {
		t.Errorf("%d bytes were kept", kept)
	}
	healthy.Store(true)
	dir, err := h.pull(h.puller(root, nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Endpoint: "ftp://x"}, {Endpoint: "huggingface.co"}, {Endpoint: "https://u:p@x"},
		{Jobs: -1}, {Jobs: 1000}, {Endpoint: "http://mirror.example.org", Token: "t"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for _, o := range []Options{{}, {Endpoint: "https://x/mirror/"}, {Endpoint: "http://mirror.example.org"},
		{Endpoint: "http://localhost:1", Token: "t"}} {
		if _, err := New(o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// If the first part had an ETag and a later part has none, the later part is not joined, because it may belong to
// another object.
func TestAPartWithoutETagIsNotJoined(t *testing.T) {
	h := newTestHub(t, smallModel()...)
	h.storeFault = func(w http.ResponseWriter, r *http.Request, data []byte, tries int) bool {
		var from int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		switch {
		case tries == 1: // half of another object
			w.Header().Set("ETag", `"old"`)
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.Write(make([]byte, len(data)/2))
			panic(http.ErrAbortHandler)
		case from == 0:
			return false
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(data[from:])
		return true
	}
	dir, err := h.pull(h.puller(t.TempDir(), nil))
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, h, dir)
	for i := 8; i < 10; i++ {
		if n := len(h.requests("store", hashOf(h.files[i]))); n != 3 {
			t.Errorf("%d requests, want 3: half, a part that is not used, and the whole", n)
		}
	}
}
