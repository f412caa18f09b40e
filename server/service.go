package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"sparrow"
	"sparrow/server/internal/metric"
)

// service is what all endpoints share: it reads requests within limits of memory and time, runs them within the quotas
// of tenants, and sends responses.
type service struct {
	engine  Engine
	info    sparrow.Info
	options Options
	metrics *metric.Set
	memory  *memory
	quotas  *quotas
	tracer  trace.Tracer // nil if requests are not traced

	state  atomic.Int32
	halted context.Context // cancelled when running requests must fail
	halt   context.CancelFunc

	now  func() time.Time
	seed func() int64 // returns the seed for requests without one
}

// States of a service, in order.
const (
	stateServing  int32 = iota
	stateLeaving        // /ready returns 503, but requests are still accepted
	stateDraining       // new requests are refused
)

func newService(e Engine, o Options) (*service, error) {
	s := &service{engine: e, info: e.Info(), options: o, memory: newMemory(o.RequestMemory),
		metrics: metric.New(e, o.VLLMNames), now: time.Now, seed: randomSeed}
	if s.info.Name == "" || !utf8.ValidString(s.info.Name) {
		return nil, fmt.Errorf("%w: the model's name is %q; want a name in valid UTF-8, which clients can send",
			ErrOptions, s.info.Name)
	}
	s.quotas = &quotas{limits: o.Limits, places: s.info.MaxRunning, now: time.Now}
	if o.Traces != nil {
		s.tracer = o.Traces.Tracer(tracerName, trace.WithInstrumentationVersion(o.Version))
	}
	s.halted, s.halt = context.WithCancel(context.Background())
	return s, nil
}

func (s *service) draining() bool { return s.state.Load() >= stateDraining }

// randomSeed returns a random seed below 2^53, because clients that store numbers as float64 round larger ones.
// crypto/rand never fails.
func randomSeed() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 11)
}
