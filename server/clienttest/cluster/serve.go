package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sparrow/internal/process"
)

// client does not reuse connections, because a restarted server has the same port as the previous process.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// freePort returns a port on which nothing listens. It is below the ports for outgoing connections of Linux, one of
// which could take it before the server listens.
func freePort() (port int, err error) {
	for range 100 {
		port = 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// worker is a server that can be restarted.
type worker struct {
	*process.Server
	args []string
}

// worker starts a server with one thread and a small cache.
func (s *stage) worker(ctx context.Context, name string, more ...string) (*worker, error) {
	w := &worker{args: append([]string{"--workers", "1", "--cache-tokens", "16384", "--draft", "off",
		"--drain-delay", "4s", "--deterministic"}, more...)}
	if err := s.restart(ctx, w, name); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(w.URL, "http://"), ":")
	w.args = append(w.args, "--port", port)
	return w, nil
}

// restart starts a worker's process, or starts it again if it has ended.
func (s *stage) restart(ctx context.Context, w *worker, name string) (err error) {
	w.Server, err = s.sparrow.Serve(ctx, name, w.args...)
	return err
}

// three starts the three workers that most parts need.
func (s *stage) three(ctx context.Context, part string) ([]*worker, error) {
	var list []*worker
	for i := range 3 {
		w, err := s.worker(ctx, fmt.Sprintf("%s-worker-%d", part, i))
		if err != nil {
			endAll(list)
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

func endAll(list []*worker) {
	for _, w := range list {
		w.Kill()
	}
}

// metric reads a metric of a worker.
func (w *worker) metric(ctx context.Context, name string) (float64, error) {
	all, err := w.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	n, ok := all[name]
	return n, want(ok, "%s has no metric %s", w.Name, name)
}

// router is a router process.
type router struct {
	*process.Process
	url string
}

// router starts a Python module as a router for workers.
func (s *stage) router(ctx context.Context, name, module string, workers []*worker, more ...string) (*router, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"-m", module, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--prometheus-port",
		strconv.Itoa(metrics), "--log-level", "error", "--worker-urls"}
	for _, w := range workers {
		args = append(args, w.URL)
	}
	r := &router{url: "http://127.0.0.1:" + strconv.Itoa(port)}
	if r.Process, err = s.python.Start(name, append(args, more...)...); err != nil {
		return nil, err
	}
	if err := r.Answers(ctx, r.url+"/readiness"); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// smg starts SMG with the settings in docs/cluster.md. It waits about a second until all workers have reported their
// load, because SMG prefers workers that have reported it.
func (s *stage) smg(ctx context.Context, name, policy string, workers []*worker) (*router, error) {
	r, err := s.router(ctx, name, "smg.launch_router", workers, "--policy", policy, "--health-check-endpoint", "/ready",
		"--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1",
		"--no-remove-unhealthy-workers", "--load-monitor-interval", "1", "--balance-abs-threshold", "1",
		"--balance-rel-threshold", "1.1")
	if err != nil {
		return nil, err
	}
	if err := r.hears(ctx, len(workers)); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// hears waits until the router knows the load of the given number of workers.
func (r *router) hears(ctx context.Context, workers int) error {
	heard := map[string]bool{}
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var got struct{ Loads []struct{ Worker string } }
		if err := get(ctx, r.url+"/get_loads", &got); err != nil {
			return err
		}
		clear(heard)
		for _, l := range got.Loads {
			heard[l.Worker] = true
		}
		if len(heard) == workers {
			return nil
		}
	}
	return fmt.Errorf("%s has the load of %d workers after %v, want %d", r.Name, len(heard), startTime, workers)
}

// get sends a GET request and decodes the response.
func get(ctx context.Context, url string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return read(r, answer)
}

// post sends a POST request and decodes the response.
func post(ctx context.Context, url string, body, answer any) error {
	r, err := newPost(ctx, url, body)
	if err != nil {
		return err
	}
	return read(r, answer)
}

func newPost(ctx context.Context, url string, body any) (*http.Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// send sends a request and returns the response, whose body the caller closes. Statuses below 300 are success.
func send(r *http.Request) (*http.Response, error) {
	res, err := client.Do(r)
	if err != nil || res.StatusCode < 300 {
		return res, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 300))
	return nil, errors.Join(fmt.Errorf("status %d: %s", res.StatusCode, got), err)
}

// read sends a request and decodes the response.
func read(r *http.Request, answer any) error {
	res, err := send(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(got, answer)
}
