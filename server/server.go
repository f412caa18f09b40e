package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"sparrow"
	"sparrow/server/metric"
	"sparrow/server/page"
)

// Server answers HTTP for one engine.
type Server struct {
	engine  Engine
	info    sparrow.Info
	options Options
	metrics *metric.Set
	scrape  http.Handler
	routes  []route
	page    *page.Files // nil without a page

	responses *responseStore
	memory    *memory
	quotas    *quotas

	state  atomic.Int32
	halted context.Context // ends when running requests are to fail
	halt   context.CancelFunc

	now  func() time.Time
	seed func() int64 // for requests that bring none
}

// The states of a server, in order.
const (
	stateServing  int32 = iota
	stateLeaving        // /ready says no, requests are still taken
	stateDraining       // nothing new is taken
)

// New prepares a server. It neither listens nor starts anything: see [Server.Serve] and [Server.Handler].
func New(e Engine, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{engine: e, info: e.Info(), options: o.withDefaults(), now: time.Now, seed: randomSeed}
	if s.info.Name == "" || !utf8.ValidString(s.info.Name) {
		return nil, fmt.Errorf("%w: the model's name is %q, and clients must be able to send it; give it one in UTF-8",
			ErrOptions, s.info.Name)
	}
	s.responses = newResponseStore(int(s.options.StoreBytes))
	s.memory = newMemory(s.options.RequestMemory)
	s.quotas = &quotas{limits: s.options.Limits, places: s.info.MaxRunning, now: time.Now}
	s.metrics = metric.New(e, o.VLLMNames)
	if o.Events != nil {
		s.metrics.AddEvents(o.Events)
	}
	s.scrape = s.metrics.Handler()
	s.halted, s.halt = context.WithCancel(context.Background())
	if !o.NoPage {
		var err error
		if s.page, err = page.New(); err != nil {
			return nil, fmt.Errorf("the page: %w", err)
		}
	}
	s.routes = s.table()
	return s, nil
}

// Handler answers every request, with keys, limits, log and metrics as on a listener of its own. Timeouts of headers
// and bodies belong to the http.Server around it; [Server.Serve] sets them.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

func (s *Server) draining() bool { return s.state.Load() >= stateDraining }

// randomSeed is below 2^53, so that the seed in a trace survives clients that keep numbers as float64. It never fails:
// crypto/rand ends the process before it hands out something predictable.
func randomSeed() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 11)
}
