//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sparrow/internal/kv/tier/resp"
	"sparrow/internal/process"
	"sparrow/internal/testkit/await"
)

// Invariants of this file: servers in separate processes that share pages give the answers of a single server,
// whichever process is killed.

var (
	replicaRequests = flag.Int("replica-requests", 10, "requests of the test of two processes")
	redisServer     = flag.String("redis-server", "", "a redis-server to test the page store with (make page-store)")
)

// replica is a server in its own process.
type replica struct{ *process.Server }

// startReplica starts a server and waits until it is ready. The server is stopped when the test ends.
func startReplica(t *testing.T, args ...string) *replica {
	t.Helper()
	program := process.Program{Path: os.Args[0], Env: []string{asProgram + "=1"}, Logs: t.TempDir()}
	s, err := program.Serve(t.Context(), "replica", append([]string{"--log-level", "warn", "--workers", "1"},
		args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return &replica{s}
}

// asked is the response of a server to a completion.
type asked struct {
	Choices []struct {
		Text         string `json:"text"`
		FinishReason string `json:"finish_reason"`
		Logprobs     *struct {
			Tokens []string  `json:"tokens"`
			Values []float64 `json:"token_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage struct {
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Params json.RawMessage `json:"kv_transfer_params"`
}

// same reports whether two responses have the same tokens and log probabilities.
func (a *asked) same(b *asked) bool {
	x, _ := json.Marshal(a.Choices)
	y, _ := json.Marshal(b.Choices)
	return bytes.Equal(x, y)
}

// completion requests a completion of token ids with log probabilities.
func (r *replica) completion(ctx context.Context, prompt []int32, tokens int, seed int, params any) (*asked, error) {
	body := map[string]any{"model": "m", "prompt": prompt, "max_tokens": tokens, "seed": seed, "logprobs": 1,
		"temperature": float64(seed % 2), "ignore_eos": true, "return_tokens_as_token_ids": true}
	if params != nil {
		body["kv_transfer_params"] = params
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/v1/completions", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, err
	}
	if got.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", got.Status, text)
	}
	var a asked
	return &a, json.Unmarshal(text, &a)
}

// randomIDs returns a prompt of n random token ids of the built-in model's vocabulary.
func randomIDs(random *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(10 + random.IntN(400))
	}
	return ids
}

// freePort returns a port that no process listened on when freePort was called.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// One process computes prompts and another continues them, as with a sidecar. Some clients disconnect, and the process
// that computes prompts is killed and restarted, also between the two halves of a request. Every answer equals that of
// one process.
func TestTwoProcessesGiveTheTokensOfOne(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	n := *replicaRequests
	common := []string{"--name", "m", "--deterministic", "--cache-tokens", "8192"}
	transfer := "127.0.0.1:" + freePort(t)
	prefillArgs := append([]string{"--role", "prefill", "--transfer-listen", transfer, "--host-cache", "64M"},
		common...)
	prefill := startReplica(t, prefillArgs...)
	decode := startReplica(t, append([]string{"--role", "decode", "--tier-wait", await.Hang.String()}, common...)...)
	one := startReplica(t, common...)

	random := rand.New(rand.NewPCG(26, 500))
	shared := randomIDs(random, 350)
	var found, lost, gone, kills int
	var count sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range n {
		switch i % 25 {
		case 6: // at this time other requests are between their two halves, or in one of them
			prefill.Kill()
			kills++
		case 9:
			prefill = startReplica(t, prefillArgs...)
		}
		prompt := append(append([]int32{}, shared[:64*random.IntN(6)]...), randomIDs(random, 1+random.IntN(200))...)
		leaves, after := random.IntN(6) == 0, time.Duration(random.IntN(30))*time.Millisecond
		first := prefill
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			var params any = json.RawMessage(`{"do_remote_decode": true, "do_remote_prefill": false,
				"remote_engine_id": null, "remote_block_ids": null, "remote_host": null, "remote_port": null}`)
			half, err := first.completion(t.Context(), prompt, 1, i, params)
			params = nil // a sidecar continues the request without parameters
			if err == nil {
				params = half.Params
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaves {
				time.AfterFunc(after, cancel)
			}
			got, err := decode.completion(ctx, prompt, 6, i, params)
			count.Lock()
			defer count.Unlock()
			switch {
			case err != nil && leaves:
				gone++
				return
			case err != nil:
				t.Errorf("request %d: %v", i, err)
				return
			case got.Usage.Details.Cached > 0:
				found++
			default:
				lost++
			}
			want, err := one.completion(t.Context(), prompt, 6, i, nil)
			if err != nil || !want.same(got) {
				t.Errorf("request %d: %+v, one process: %+v, %v", i, got, want, err)
			}
		})
	}
	wait.Wait()
	text := metrics(t, decode)
	t.Logf("%d requests: %d found pages, %d computed all, %d clients left, %d kills\n%s", n, found, lost, gone, kills,
		text)
	if strings.Contains(text, `sparrow_tier_pages_total{event="hit",tier="peer"} 0`) {
		t.Error("nothing was pulled")
	}
}

// redis is a real Redis server in its own process.
type redis struct {
	cmd  *exec.Cmd
	port string
}

func startRedis(t *testing.T, port string) *redis {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(*redisServer, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", dir)
	cmd.Env = os.Environ()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
	})
	r := &redis{cmd, port}
	await.True(t, "redis-server answers", func() bool {
		c, err := r.connect()
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return r
}

func (r *redis) connect() (*resp.Conn, error) {
	c, err := resp.Dial(context.Background(), resp.Address{Host: "127.0.0.1:" + r.port})
	if err == nil {
		_, err = c.Do("PING")
	}
	return c, err
}

// do sends one command to the store and returns its reply.
func (r *redis) do(t *testing.T, args ...string) resp.Reply {
	t.Helper()
	c, err := r.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.Do(args...)
	if err != nil || got.Kind == resp.Failure {
		t.Fatalf("%.60q: %+v, %v", args, got, err)
	}
	return got
}

// size returns the number of keys in the store.
func (r *redis) size(t *testing.T) int { return int(r.do(t, "DBSIZE").Int) }

// waitFor waits until the store has the given number of keys.
func (r *redis) waitFor(t *testing.T, keys int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d pages are in the store", keys), func() bool { return r.size(t) >= keys })
}

// garbage is a Lua script that overwrites bytes in the middle of every value in the store.
const garbage = `local keys = redis.call('KEYS', '*')
for _, k in ipairs(keys) do redis.call('SETRANGE', k, ARGV[1], string.rep('x', 1000)) end
return #keys`

func TestTwoServersShareARedis(t *testing.T) {
	if *redisServer == "" {
		t.Skip("needs a redis-server: make page-store")
	}
	dir := t.TempDir() + "/mini"
	mustDrive(t, "", "synth", dir, "--config", "v32-mini", "--dtype", "fp8")
	store := startRedis(t, freePort(t))
	args := []string{"--model", dir, "--name", "m", "--deterministic", "--cache-tokens", "16384", "--page-store",
		"redis://127.0.0.1:" + store.port, "--tier-wait"}
	patient, hurried := append(slices.Clone(args), await.Hang.String()), append(slices.Clone(args), "500ms")
	first := startReplica(t, patient...)
	random := rand.New(rand.NewPCG(26, 3))
	ask := func(r *replica, prompt []int32) (*asked, time.Duration) {
		t.Helper()
		begun := time.Now()
		got, err := r.completion(t.Context(), prompt, 1, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got, time.Since(begun)
	}
	ask(first, randomIDs(random, 40)) // this request warms the server up
	prompt := randomIDs(random, 2000+40)
	want, computed := ask(first, prompt)
	store.waitFor(t, 31)

	second := startReplica(t, patient...)
	ask(second, randomIDs(random, 40))
	got, fetched := ask(second, prompt)
	if !got.same(want) || got.Usage.Details.Cached != 31*64 {
		t.Errorf("%+v, want %+v", got, want)
	}
	t.Logf("2,040 tokens: computed in %v, with pages of the other server in %v: %.1f x", computed, fetched,
		float64(computed)/float64(fetched))

	// Short and longer prompts are sent while the store fails repeatedly; the expected answers come from a server
	// without a store.
	alone := startReplica(t, args[:7]...)
	type known struct {
		prompt []int32
		want   *asked
	}
	var load []known
	for range 3 {
		p := append(append([]int32{}, prompt[:320]...), randomIDs(random, 100)...)
		w, _ := ask(alone, p)
		load = append(load, known{p, w})
	}
	run := func(name string) {
		begun := time.Now()
		third := startReplica(t, hurried...) // the cache of this server is empty, so it asks the store
		ask(third, randomIDs(random, 10))
		var wait sync.WaitGroup
		for i := range 2 * len(load) {
			k := load[i%len(load)]
			wait.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				got, err := third.completion(t.Context(), k.prompt, 1, 0, nil)
				if err != nil || !got.same(k.want) {
					t.Errorf("%s: another answer: %v", name, err)
				}
			})
		}
		wait.Wait()
		third.Kill()
		t.Logf("%s: answers are right (%v)", name, time.Since(begun).Round(time.Millisecond))
	}
	run("works")
	store.do(t, "EVAL", garbage, "0", "5000")
	run("garbage")
	store.do(t, "CONFIG", "SET", "maxmemory", "1mb")
	run("full")
	store.do(t, "CONFIG", "SET", "maxmemory", "0")
	if err := store.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	run("paused")
	store.cmd.Process.Signal(syscall.SIGCONT)
	during := time.AfterFunc(300*time.Millisecond, func() { store.cmd.Process.Kill() })
	run("killed")
	during.Stop()
	startRedis(t, store.port)
	run("new and empty")
	if text := metrics(t, second); !strings.Contains(text, `sparrow_tier_pages_total{event="hit",tier="store"} 31`) {
		t.Errorf("metrics of the second server:\n%s", text)
	}
}

// metrics returns the lines of a server's metrics about tiers.
func metrics(t *testing.T, r *replica) string {
	t.Helper()
	got, err := http.Get(r.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	all, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, "sparrow_tier") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
