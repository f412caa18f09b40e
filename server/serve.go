package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// failTime is the time for streams to send their last error after the grace period.
const failTime = 2 * time.Second

// Serve serves on a listener until ctx ends. Then it shuts down: /ready returns 503; after Options.DrainDelay new
// requests are refused; after Options.Grace running requests fail with an error. It returns nil after a shutdown. It
// must be called at most once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := s.httpServer()
	if s.options.Batches != nil {
		s.options.Batches.Start(lineRunner{s})
	}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(l) }()
	select {
	case err := <-failed:
		s.stopBatches()
		return fmt.Errorf("server: %w", err)
	case <-ctx.Done():
	}
	s.drain(hs)
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// stopBatches cancels the running lines of batches; the next process runs them again.
func (s *Server) stopBatches() {
	if s.options.Batches == nil {
		return
	}
	if err := s.options.Batches.Stop(); err != nil {
		s.options.Log.Warn("the folder of batches was not closed", "error", err)
	}
}

// httpServer returns an HTTP server whose timeouts prevent slow or hostile clients from keeping connections open. Its
// write timeout is for responses that need no model; other responses set a deadline for each piece.
func (s *Server) httpServer() *http.Server {
	o := &s.options
	return &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: o.HeaderTimeout,
		ReadTimeout:       o.BodyTimeout,
		WriteTimeout:      o.WriteTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
}

// drain refuses new requests, and waits for running ones or cancels them.
func (s *Server) drain(hs *http.Server) {
	o := &s.options
	s.state.Store(stateLeaving)
	grace := max(o.Grace, 0)
	o.Log.Info("shutting down", "delay", o.DrainDelay, "grace", grace)
	time.Sleep(o.DrainDelay)
	s.state.Store(stateDraining)
	s.stopBatches()
	first, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if hs.Shutdown(first) == nil {
		s.halt()
		return
	}
	o.Log.Warn("the grace period is over; running requests fail now")
	s.halt()
	last, cancelLast := context.WithTimeout(context.Background(), failTime)
	defer cancelLast()
	if hs.Shutdown(last) != nil {
		hs.Close()
	}
}
