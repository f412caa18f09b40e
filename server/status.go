package server

import (
	"fmt"
	"net/http"
	"runtime"
	"time"
)

// statusAPI implements the endpoints for load balancers and scrapers: health, readiness, metrics, version.
type statusAPI struct {
	*service
	scrape http.Handler // handler of the metrics
}

type statusBody struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// WaitSeconds is the estimated queueing time of new requests, if it exceeds the maximum.
	WaitSeconds float64 `json:"wait_seconds,omitempty"`
}

// health handles GET /health, which always succeeds.
func (s statusAPI) health(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, statusBody{Status: "ok"})
}

// ready handles GET /ready, which succeeds if the server accepts requests.
func (s statusAPI) ready(w http.ResponseWriter, _ *http.Request) error {
	body := statusBody{Status: "not ready"}
	switch stats := s.engine.Stats(); {
	case s.state.Load() != stateServing:
		body.Reason = "shutting down"
	case stats.Asleep:
		body.Reason = "asleep"
	case stats.Device != "":
		body.Reason = stats.Device
	case s.info.MaxQueue > 0 && stats.Waiting >= s.info.MaxQueue:
		body.Reason = "the queue is full"
	case s.options.MaxWait > 0 && s.wait() > s.options.MaxWait:
		body.WaitSeconds = s.wait().Seconds()
		body.Reason = fmt.Sprintf("new requests would wait longer than %v", s.options.MaxWait)
	default:
		return s.respond(w, http.StatusOK, statusBody{Status: "ready"})
	}
	return s.respond(w, http.StatusServiceUnavailable, body)
}

// wait returns the shortest estimated queueing time of all tenants, because a tenant with a long queue does not affect
// others.
func (s statusAPI) wait() time.Duration {
	names := s.options.Keys.tenants()
	least := s.engine.Wait(names[0], "")
	for _, name := range names[1:] {
		least = min(least, s.engine.Wait(name, ""))
	}
	return least
}

// metricsText handles GET /metrics.
func (s statusAPI) metricsText(w http.ResponseWriter, r *http.Request) error {
	s.scrape.ServeHTTP(w, r)
	return nil
}

// versionBody has vLLM's member first, because some routers read only that.
type versionBody struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// version handles GET /version.
func (s statusAPI) version(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, versionBody{s.options.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
}
