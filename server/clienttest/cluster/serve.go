package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// client keeps no connections: a server that starts again on the same port must not be met by an old one.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// freePort is one that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// answers waits until a URL answers with status 200.
func answers(ctx context.Context, p *process, url string) error {
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if res, err := client.Do(r); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w", p.name, p.err)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
	return fmt.Errorf("%s does not answer at %s after %v", p.name, url, startTime)
}

// worker is a server.
type worker struct {
	*process
	url  string
	args []string
}

// worker starts a server on a port of its own, with one thread and a small cache.
func (s *stage) worker(ctx context.Context, name string, more ...string) (*worker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	w := &worker{url: "http://127.0.0.1:" + strconv.Itoa(port), args: append([]string{"serve", "--port",
		strconv.Itoa(port), "--workers", "1", "--cache-tokens", "16384", "--draft", "off", "--vllm-metrics",
		"--drain-delay", "4s", "--deterministic"}, more...)}
	return w, s.restart(ctx, w, name)
}

// restart starts a worker's process, again where it has ended.
func (s *stage) restart(ctx context.Context, w *worker, name string) (err error) {
	if w.process, err = s.start(name, s.binary, w.args...); err != nil {
		return err
	}
	return answers(ctx, w.process, w.url+"/ready")
}

// three are the workers of most parts.
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
		w.kill()
	}
}

// metric reads a number of a worker.
func (w *worker) metric(name string) (float64, error) {
	res, err := client.Get(w.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", w.name, name)
}

// router is what clients talk to.
type router struct {
	*process
	url string
}

// router starts one of Python's launchers in front of workers.
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
		args = append(args, w.url)
	}
	r := &router{url: "http://127.0.0.1:" + strconv.Itoa(port)}
	if r.process, err = s.start(name, s.python, append(args, more...)...); err != nil {
		return nil, err
	}
	if err := answers(ctx, r.process, r.url+"/readiness"); err != nil {
		r.kill()
		return nil, err
	}
	return r, nil
}

// smg starts SMG, which looks at its workers every second, and leaves the worker that holds a prefix where that has one
// request and a tenth more than the mean: few conversations are to be even too.
func (s *stage) smg(ctx context.Context, name, policy string, workers []*worker) (*router, error) {
	return s.router(ctx, name, "smg.launch_router", workers, "--policy", policy, "--health-check-endpoint", "/ready",
		"--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1",
		"--no-remove-unhealthy-workers", "--balance-abs-threshold", "1", "--balance-rel-threshold", "1.1")
}

// send sends a body and gives the answer, whose body the caller closes. Indexers answer with any status below 300.
func send(ctx context.Context, url string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil || res.StatusCode < 300 {
		return res, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 300))
	return nil, errors.Join(fmt.Errorf("status %d: %s", res.StatusCode, got), err)
}

// post sends a body and reads the answer.
func post(ctx context.Context, url string, body, answer any) error {
	res, err := send(ctx, url, body)
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
