package hub

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzList checks that, for any list of files that a server sends, the chosen files stay inside the model's folder and
// have a size and a hash to check.
func FuzzList(f *testing.F) {
	const commit = `"sha":"` + testCommit + `"`
	f.Add(`{` + commit + `,"siblings":[{"rfilename":"config.json","size":2,"blobId":"` + strings.Repeat("a", 40) + `"}]}`)
	f.Add(`{` + commit + `,"siblings":[{"rfilename":"../config.json"}]}`)
	f.Add(`{` + commit + `,"siblings":[{"rfilename":"model.safetensors","lfs":{"sha256":"x","size":-1}}]}`)
	f.Add(`{"sha":"..","siblings":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(body))
		}))
		defer h.Close()
		p, err := New(Options{Cache: Cache{t.TempDir()}, Endpoint: h.URL})
		if err != nil {
			t.Fatal(err)
		}
		l, err := p.list(context.Background(), Name{Repo: testRepo, Revision: "main"})
		if err != nil {
			return
		}
		if !commitForm.MatchString(l.commit) {
			t.Errorf("commit %q", l.commit)
		}
		for name := range l.files {
			if !filepath.IsLocal(name) || strings.Contains(name, `\`) {
				t.Errorf("%q is listed", name)
			}
			if g, err := l.file(Name{Repo: testRepo, Revision: "main"}, name); err == nil &&
				(g.Size < 0 || !filepath.IsLocal(g.Hash) || strings.ContainsAny(g.Hash, `/\.`)) {
				t.Errorf("%+v is taken", g)
			}
		}
	})
}
