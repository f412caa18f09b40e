package metric

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sparrow"
)

// Source returns the values of an engine.
type Source interface {
	Info() sparrow.Info
	Stats() sparrow.Stats
}

// Set holds the metrics of one server. Its methods are safe for concurrent use.
type Set struct {
	registry *prometheus.Registry

	firstToken   observers
	gap          observers
	request      observers
	promptTokens observers
	outputTokens observers

	http         *prometheus.CounterVec
	panics       prometheus.Counter
	finished     *prometheus.CounterVec
	vllmFinished *prometheus.CounterVec // nil unless vLLM's names are enabled
}

// observers are one or two histograms that record the same values.
type observers []prometheus.Observer

func (o observers) observe(v float64) {
	for _, each := range o {
		each.Observe(v)
	}
}

// Buckets in seconds. The time to the first token is between a millisecond (cached prompt) and minutes (long prompt on
// a CPU). The time between tokens is between microseconds (test model) and a second (large model on a laptop).
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
		160, 640}
	gapBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5,
		5, 10}
	requestBuckets = []float64{.01, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240,
		480, 960, 1920}
	tokenBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5}
)

// New returns the metrics of a server. vllm adds metrics with vLLM's names.
func New(source Source, vllm bool) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	s.registry.MustRegister(
		&slow{from: collectors.NewGoCollector()},
		&slow{from: collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})},
		newEngineCollector(source),
	)
	s.http = s.counters("sparrow_http_requests_total", "HTTP requests answered, by route and status.", "route",
		"status")
	s.panics = prometheus.NewCounter(prometheus.CounterOpts{Name: "sparrow_http_panics_total",
		Help: "Handlers that panicked and were answered with status 500."})
	s.registry.MustRegister(s.panics)
	s.finished = s.counters("sparrow_choices_total", "Choices that ended, by reason.", "reason")
	s.histograms("sparrow_", names{
		firstToken: "time_to_first_token_seconds", gap: "inter_token_seconds", request: "request_seconds",
		promptTokens: "request_prompt_tokens", outputTokens: "request_output_tokens",
	}, nil)
	if vllm {
		s.addVLLM(source)
	}
	// Every reason exists from the start with value 0, because rate() ignores the first value of a new series.
	for _, why := range []sparrow.Finish{sparrow.FinishStop, sparrow.FinishLength, sparrow.FinishToolCalls,
		sparrow.FinishCancelled, sparrow.FinishError} {
		s.choices(why, 0)
	}
	return s
}

// names holds the names of histograms under one naming scheme.
type names struct{ firstToken, gap, request, promptTokens, outputTokens string }

func (s *Set) histograms(prefix string, n names, labels prometheus.Labels) {
	for _, h := range []struct {
		name, help string
		buckets    []float64
		into       *observers
	}{
		{n.firstToken, "From a request's arrival to its first token.", firstTokenBuckets, &s.firstToken},
		{n.gap, "From one token of a choice to the next; tokens that arrive together share the time evenly.",
			gapBuckets, &s.gap},
		{n.request, "From a request's arrival to its end.", requestBuckets, &s.request},
		{n.promptTokens, "Prompt tokens of a request.", tokenBuckets, &s.promptTokens},
		{n.outputTokens, "Generated tokens of a request, over all its choices.", tokenBuckets, &s.outputTokens},
	} {
		made := prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + h.name, Help: h.help,
			Buckets: h.buckets, ConstLabels: labels})
		s.registry.MustRegister(made)
		*h.into = append(*h.into, made)
	}
}

func (s *Set) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.registry.MustRegister(c)
	return c
}

// Handler returns the handler of scrapes.
func (s *Set) Handler() http.Handler {
	// Compression would take longer than the rest of a scrape, and scrapers are on the same network.
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry, DisableCompression: true})
}

// FirstToken records the time from the arrival of a request to its first token.
func (s *Set) FirstToken(wait time.Duration) { s.firstToken.observe(wait.Seconds()) }

// Gap records the time since the previous tokens of a choice, divided evenly among the given number of new tokens.
func (s *Set) Gap(since time.Duration, tokens int) {
	for range tokens {
		s.gap.observe(since.Seconds() / float64(tokens))
	}
}

// Request records the duration and token counts of a completed request.
func (s *Set) Request(took time.Duration, usage sparrow.Usage) {
	s.request.observe(took.Seconds())
	s.promptTokens.observe(float64(usage.PromptTokens))
	s.outputTokens.observe(float64(usage.CompletionTokens))
}

// Finished counts a completed choice by reason.
func (s *Set) Finished(why sparrow.Finish) { s.choices(why, 1) }

func (s *Set) choices(why sparrow.Finish, n float64) {
	s.finished.WithLabelValues(string(why)).Add(n)
	if s.vllmFinished != nil {
		s.vllmFinished.WithLabelValues(vllmReason(why)).Add(n)
	}
}

// HTTP counts a response. route is a pattern, not a path, so that clients cannot create new series.
func (s *Set) HTTP(route string, status int) {
	s.http.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// Panic counts a handler that panicked.
func (s *Set) Panic() { s.panics.Inc() }
