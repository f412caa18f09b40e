package clienttest

import (
	"context"
	"net"
	"testing"

	"sparrow"
	"sparrow/internal/testkit/await"
	"sparrow/server"
)

// model is the name of the built-in model in requests.
const model = "sparrow-tiny"

// The built-in model was trained for these questions and gives these answers.
const (
	treesQuestion = "Rolf plants 22 trees every day for 7 days. How many trees is that?"
	treesAnswer   = "22 * 7 = 154\n#### 154"
	nameQuestion  = "What are you called?"
	nameAnswer    = "I am Sparrow, a tiny language model with sparse attention."
)

// service is a server on a loopback port with its own engine.
type service struct {
	addr   string // host:port
	engine *sparrow.Engine
}

// start opens the built-in model and serves it until the test ends. Server and engine must then close without an error
// and without a page in use.
func start(t *testing.T, c sparrow.Config, o server.Options) *service {
	t.Helper()
	if c.CacheTokens == 0 {
		c.CacheTokens = 16384 // enough for every test, and a fraction of the memory of the default
	}
	c.Workers = 1 // more of them only spin for such small models
	e, err := sparrow.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopEngine(t, e) })
	return serve(t, e, o)
}

// serve serves an engine until the test ends.
func serve(t *testing.T, e *sparrow.Engine, o server.Options) *service {
	t.Helper()
	s, err := server.New(server.Adapt(e), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Value(t, "the server ends", done); err != nil {
			t.Error(err)
		}
	})
	return &service{addr: l.Addr().String(), engine: e}
}

func stopEngine(t *testing.T, e *sparrow.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Hang)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); s.Running != 0 || s.Waiting != 0 || s.KV.Used != 0 {
		t.Errorf("left behind: %d running, %d waiting, %d pages", s.Running, s.Waiting, s.KV.Used)
	}
}

func (s *service) url() string { return "http://" + s.addr }
