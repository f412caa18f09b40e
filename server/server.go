package server

import (
	"fmt"
	"net/http"

	"sparrow/server/internal/page"
)

// Server serves one engine over HTTP: it finds the endpoint of a request, checks the key, and counts and logs the
// request.
type Server struct {
	*service
	routes []route
}

// New returns a server that does not listen yet: see [Server.Serve] and [Server.Handler].
func New(e Engine, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s, err := newService(e, o.withDefaults())
	if err != nil {
		return nil, err
	}
	if o.Events != nil {
		s.metrics.AddEvents(o.Events)
	}
	if o.Batches != nil {
		s.metrics.AddBatches(o.Batches)
	}
	var files *page.Files
	if !o.NoPage {
		if files, err = page.New(); err != nil {
			return nil, fmt.Errorf("the page: %w", err)
		}
	}
	return &Server{s, routes(s, files)}, nil
}

// Handler returns a handler for all requests, with the same keys, limits, log and metrics as Serve. Timeouts of headers
// and bodies are those of the caller's http.Server.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }
