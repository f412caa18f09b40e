package server

import (
	"net/http"
	"strings"

	"sparrow/internal/wire"
	"sparrow/server/internal/page"
)

// website serves the web page; files is nil if the page is disabled.
type website struct{ files *page.Files }

// root handles GET /: browsers get the page. Other clients get a line of text, which clients of Ollama expect.
func (s website) root(w http.ResponseWriter, r *http.Request) error {
	if s.files != nil {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			_, err := s.files.Serve(w, r, "")
			return gone(err)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte("Sparrow is running"))
	return gone(err)
}

// pageFile handles GET /page/: the files of the page.
func (s website) pageFile(w http.ResponseWriter, r *http.Request) error {
	ok, err := s.files.Serve(w, r, strings.TrimPrefix(r.URL.Path, page.Prefix))
	if !ok {
		return wire.NewError(wire.CodeUnknownURL, "", "the page has no file %.200q; the page itself is at /",
			r.URL.Path)
	}
	return gone(err)
}
