package server

import (
	"fmt"
	"net/http"

	"sparrow/server/internal/page"
)

// Server answers HTTP for one engine: it finds the endpoint of a request, checks its key, and counts it.
type Server struct {
	*service
	routes []route
}

// New prepares a server. It neither listens nor starts anything: see [Server.Serve] and [Server.Handler].
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

// Handler answers every request, with keys, limits, log and metrics as on a listener of its own. Timeouts of headers
// and bodies belong to the http.Server around it; [Server.Serve] sets them.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }
