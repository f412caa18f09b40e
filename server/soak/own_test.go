//go:build !remote

package soak

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"sparrow"
	"sparrow/server"
)

// ownServer serves the built-in model until the test ends.
func ownServer(t *testing.T) string {
	t.Helper()
	e, err := sparrow.Open(t.Context(), sparrow.Config{CacheTokens: 16384, ContextTokens: 4096, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Adapt(e), server.Options{Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, at) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, e.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return "http://" + at.Addr().String()
}
