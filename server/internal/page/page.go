// Package page is the web page of a server, with views for chats, recordings (explorer) and plans. The files in the
// folder web are embedded and served unchanged; there is no build step. All addresses in them are relative, so that the
// page works behind a proxy that adds a path.
//
// The page uses only the public API, and loading it needs no key. Texts of a model become text nodes, never markup,
// which [Policy] enforces.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"sparrow/examples"
)

// Prefix is the path of the page's files on the server.
const Prefix = "/page/"

// Policy is the Content-Security-Policy of the page: it allows only files and requests of this server, nothing inline,
// and no conversion of text to markup.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types 'none'"

//go:embed web
var web embed.FS

// types maps file extensions to content types.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// file is a file of the page, with content type and ETag.
type file struct {
	kind, tag string
	body      []byte
}

// Files holds the files of the page by name; "" is the page itself.
type Files struct{ byName map[string]file }

// New prepares the embedded files.
func New() (*Files, error) {
	f := &Files{byName: map[string]file{}}
	err := fs.WalkDir(web, "web", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := web.ReadFile(name)
		if err != nil {
			return err
		}
		f.add(strings.TrimPrefix(name, "web/"), body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.add("station.txt", []byte(examples.Station))
	f.byName[""] = f.byName["index.html"]
	return f, nil
}

func (f *Files) add(name string, body []byte) {
	sum := sha256.Sum256(body)
	f.byName[name] = file{types[path.Ext(name)], `"` + hex.EncodeToString(sum[:8]) + `"`, body}
}

// Serve sends a file; ok is false if there is none with this name. Browsers must revalidate it, so that files of two
// builds are never mixed.
func (f *Files) Serve(w http.ResponseWriter, r *http.Request, name string) (ok bool, err error) {
	one, ok := f.byName[name]
	if !ok {
		return false, nil
	}
	h := w.Header()
	h.Set("Content-Type", one.kind)
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", one.tag)
	if r.Header.Get("If-None-Match") == one.tag {
		w.WriteHeader(http.StatusNotModified)
		return true, nil
	}
	_, err = w.Write(one.body)
	return true, err
}
