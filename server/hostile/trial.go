package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sparrow/internal/process"
)

// trial is one round: a server and its senders.
type trial struct {
	program process.Program
	draw    *rand.Rand
	workers int
	length  time.Duration
	tally   *tally
	server  *process.Server
	client  *http.Client
	answer  string // answer to the question of ask
}

// tally counts requests and responses.
type tally struct {
	mu       sync.Mutex
	requests int
	statuses map[int]int
	left     int // clients that disconnected before the end of an answer
	asked    int // number of calls of ask
	terms    int
	kills    int
	most     map[string]float64 // maximum resources in use after a round of requests
}

func (t *tally) add(status int, left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	if left {
		t.left++
	}
	if t.statuses == nil {
		t.statuses = map[int]int{}
	}
	if status > 0 {
		t.statuses[status]++
	}
}

// keep updates the maximum resources in use.
func (t *tally) keep(after map[string]float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most == nil {
		t.most = map[string]float64{}
	}
	for name, v := range after {
		t.most[name] = max(t.most[name], v)
	}
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := fmt.Sprintf("%d requests, %d clients left early, %d right answers, %d TERM, %d KILL; statuses", t.requests,
		t.left, t.asked, t.terms, t.kills)
	for _, s := range slices.Sorted(maps.Keys(t.statuses)) {
		text += fmt.Sprintf(" %d: %d", s, t.statuses[s])
	}
	text += "; most after bad requests:"
	for _, name := range slices.Sorted(maps.Keys(t.most)) {
		text += fmt.Sprintf(" %s %.0f,", name, t.most[name])
	}
	return text
}

// flags returns random flags for a server.
func (b *trial) flags() []string {
	d := b.draw
	out := []string{"--log-level", "error", "--grace", "5s", "--workers", "1",
		"--cache-tokens", []string{"1024", "4096", "16384"}[d.IntN(3)], "--max-running", strconv.Itoa(2 + d.IntN(30)),
		"--max-queue", strconv.Itoa(4 + d.IntN(60)), "--draft", []string{"auto", "off", "2"}[d.IntN(3)]}
	if d.IntN(3) == 0 {
		out = append(out, "--request-timeout", "2s")
	}
	if d.IntN(3) == 0 {
		out = append(out, "--request-memory", "64M")
	}
	return out
}

// run runs a round. At its end the server is stopped with TERM or KILL while clients send.
func (b *trial) run(ctx context.Context, number int) (err error) {
	flags := b.flags()
	if b.server, err = b.program.Serve(ctx, "server", flags...); err != nil {
		return err
	}
	defer func() { b.server.Kill() }()
	b.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: b.workers}, Timeout: time.Minute}
	defer b.client.CloseIdleConnections()
	if b.answer, err = b.ask(ctx); err != nil {
		return err
	}
	fresh, err := b.held(ctx)
	if err != nil {
		return err
	}
	if err := b.send(ctx, b.length/5); err != nil { // warm-up: memory that the first requests allocate is kept
		return err
	}
	before, err := b.held(ctx)
	if err != nil {
		return err
	}
	before["goroutines"], before["files"] = fresh["goroutines"], fresh["files"]
	if err := b.send(ctx, b.length); err != nil {
		return err
	}
	if err := b.settle(ctx, before); err != nil {
		return fmt.Errorf("%w; flags %v", err, flags)
	}
	if again, err := b.ask(ctx); err != nil || again != b.answer {
		return fmt.Errorf("the answer changed from %q to %q; error %v", b.answer, again, err)
	}
	return b.end(ctx, number%2 == 0)
}

// end stops the server while clients send.
func (b *trial) end(ctx context.Context, kill bool) error {
	ctx, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for range b.workers {
		a := &sender{trial: b, draw: rand.New(rand.NewPCG(b.draw.Uint64(), 2)), ending: true}
		clients.Go(func() {
			for ctx.Err() == nil && a.one(ctx) == nil { // a server that shuts down refuses requests
			}
		})
	}
	time.Sleep(time.Second)
	var err error
	if kill {
		b.tally.kills++
		b.server.Kill()
	} else {
		b.tally.terms++
		err = b.server.End(syscall.SIGTERM)
	}
	stop()
	clients.Wait()
	return err
}

// send runs all clients for the time length.
func (b *trial) send(ctx context.Context, length time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, length)
	defer stop()
	errs := make([]error, b.workers)
	var clients sync.WaitGroup
	for i := range b.workers {
		a := &sender{trial: b, draw: rand.New(rand.NewPCG(b.draw.Uint64(), 2))}
		clients.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = a.one(ctx)
			}
		})
	}
	clients.Wait()
	return errors.Join(append(errs, b.server.Running())...)
}

// ask sends a question at temperature 0, whose answer must be the same under any load.
func (b *trial) ask(ctx context.Context) (string, error) {
	const body = named + `"prompt": "A garden is 21 meters long", "max_tokens": 12, "temperature": 0}`
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.server.URL+"/v1/completions",
			strings.NewReader(body))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := b.client.Do(r)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			return "", err
		case resp.StatusCode == http.StatusOK:
			b.tally.mu.Lock()
			b.tally.asked++
			b.tally.mu.Unlock()
			return text(data), nil
		case resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable &&
			resp.StatusCode != http.StatusGatewayTimeout:
			return "", fmt.Errorf("a question got status %d: %s", resp.StatusCode, data)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// text returns the text of a completion response.
func text(data []byte) string {
	_, rest, _ := strings.Cut(string(data), `"text":`)
	answer, _, _ := strings.Cut(rest, `,"`)
	return answer
}

// patience is the maximum time until the server has released all resources after requests.
const patience = 20 * time.Second

// settle waits until the server has released all resources.
func (b *trial) settle(ctx context.Context, before map[string]float64) error {
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		after, err := b.held(ctx)
		if err != nil {
			return err
		}
		err = compare(before, after)
		if err != nil && time.Since(begun) < patience {
			continue
		}
		b.tally.keep(after)
		return err
	}
}

// held returns the resources in use when no request runs.
func (b *trial) held(ctx context.Context) (map[string]float64, error) {
	b.client.CloseIdleConnections()
	var m map[string]float64
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		var err error
		if m, err = b.server.Metrics(ctx); err != nil {
			return nil, err
		}
		if m["sparrow_requests_running"]+m["sparrow_requests_waiting"]+m[`sparrow_kv_pages{state="used"}`] == 0 {
			break
		}
	}
	resp, err := b.client.Get(b.server.URL + "/health")
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/health returned %s", resp.Status)
	}
	out := map[string]float64{"goroutines": m["go_goroutines"], "files": m["process_open_fds"],
		"resident bytes": m["process_resident_memory_bytes"], "heap bytes": m["go_memstats_heap_inuse_bytes"],
		"pages in use": m[`sparrow_kv_pages{state="used"}`], "running": m["sparrow_requests_running"],
		"waiting": m["sparrow_requests_waiting"], "panics": m["sparrow_http_panics_total"],
		"pages":  m[`sparrow_kv_pages{state="cached"}`] + m[`sparrow_kv_pages{state="free"}`],
		reserved: m[`sparrow_device_memory_bytes{owner="cache"}`] + m[`sparrow_device_memory_bytes{owner="arena"}`]}
	return out, nil
}

// reserved names the memory of the cache and of steps, which is allocated at the start but becomes resident later.
const reserved = "bytes of cache and steps"

// growth is the allowed growth of an idle server's memory in bytes, for buffers and garbage.
const growth = 128 << 20

// compare returns an error that lists the resources in use before and not released after requests.
func compare(before, after map[string]float64) error {
	var errs []error
	for name, was := range before {
		now := after[name]
		most := was
		switch name {
		case "goroutines", "files":
			most = was + 2 // the connection of this request, and a worker that the first request starts
		case "resident bytes":
			most = was + growth + before[reserved]
		case "heap bytes":
			most = was + growth
		case "pages in use", "running", "waiting", "panics":
			most = 0
		}
		if now > most || name == "pages" && now != was {
			errs = append(errs, fmt.Errorf("%s was %.0f before the bad requests and is %.0f after them", name, was,
				now))
		}
	}
	return errors.Join(errs...)
}

// dial opens a connection for raw bytes.
func (b *trial) dial() (net.Conn, error) {
	return net.DialTimeout("tcp", strings.TrimPrefix(b.server.URL, "http://"), 5*time.Second)
}
