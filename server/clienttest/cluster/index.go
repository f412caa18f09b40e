package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/kv/event"
	"sparrow/internal/process"
)

// pageTokens is the tokens per page and pages the number of pages of the indexed cache.
const (
	pageTokens = 16
	pages      = 300
)

// index checks that Dynamo's index of cached prefixes returns the same matches as the cache. This must hold after
// random stores, evictions and clears, lost frames, new connections, a new index and a new server.
func (s *stage) index(ctx context.Context) error {
	x := &indexed{stage: s, ctx: ctx, random: rand.New(rand.NewPCG(26, 2))}
	defer x.close()
	if err := x.open(); err != nil {
		return err
	}
	const rounds, steps = 20, 500
	var err error
	for round := range rounds {
		for range steps {
			x.step()
		}
		switch round % 5 {
		case 1:
			x.line.lose(40) // frames that are lost
		case 2:
			x.line.cut() // the index reconnects
		case 3:
			if round == 13 {
				err = errors.Join(err, x.newIndexer())
			}
		case 4:
			if round == 9 {
				err = errors.Join(err, x.newServer())
			}
		}
		if err == nil {
			err = x.compare()
		}
		if err != nil {
			break
		}
	}
	figure := fmt.Sprintf("%d prompts queried after %d changes; %d stored, %d evicted, %d cleared", x.asked,
		rounds*steps, x.stored, x.evicted, x.cleared)
	s.check("Dynamo's indexer returns what the cache would match", figure, err)
	lost, cuts := x.line.counts()
	figure = fmt.Sprintf("%d frames lost, %d connections cut", lost, cuts)
	s.check("  although frames, connections, itself and the server were lost", figure,
		want(lost > 0 && cuts > 0, "%s", figure))
	return nil
}

// tiers checks that the index also contains pages that the server has evicted to host memory.
func (s *stage) tiers(ctx context.Context) error {
	events, err := freePort()
	if err != nil {
		return err
	}
	address := func(port int) string { return "tcp://127.0.0.1:" + strconv.Itoa(port) }
	w, err := s.worker(ctx, "tiers", "--cache-tokens", "2048", "--context", "1024", "--host-cache", "256M",
		"--kv-events", address(events))
	if err != nil {
		return err
	}
	defer w.Kill()
	x := &indexed{stage: s, ctx: ctx}
	if err := x.startIndexer(); err != nil {
		return err
	}
	defer x.indexer.Kill()
	if err := x.register(64, address(events), address(events+1)); err != nil {
		return err
	}
	const prompts = 10
	ask := func(i int) (u usage, err error) {
		var got struct{ Usage usage }
		err = post(ctx, w.URL+"/v1/completions", map[string]any{"model": model, "max_tokens": 1,
			"prompt": text(rand.New(rand.NewPCG(uint64(i), 9)), 250)}, &got)
		return got.Usage, err
	}
	for i := range prompts {
		if _, err := ask(i); err != nil {
			return err
		}
	}
	time.Sleep(time.Second) // pages are copied and published asynchronously
	found := ""
	for i := range prompts {
		var rendered []struct {
			Tokens []int32 `json:"token_ids"`
		}
		if err := post(ctx, w.URL+"/v1/completions/render", map[string]any{"model": model,
			"prompt": text(rand.New(rand.NewPCG(uint64(i), 9)), 250)}, &rendered); err != nil {
			return err
		}
		var got struct {
			Instances map[string]struct {
				Longest int `json:"longest_matched"`
				Device  int `json:"gpu"`
			}
		}
		if err := post(ctx, x.url+"/query", map[string]any{"model_name": model, "token_ids": rendered[0].Tokens},
			&got); err != nil {
			return err
		}
		in := got.Instances["1"]
		if in.Longest == in.Device {
			continue
		}
		found = fmt.Sprintf("%d tokens, %d of them on the device", in.Longest, in.Device)
		u, asking := ask(i)
		err = errors.Join(asking, want(u.Details.Cached == in.Longest, "the index reports %s, the server finds %d",
			found, u.Details.Cached))
		break // this request has evicted pages of other prompts
	}
	s.check("Dynamo's indexer has pages in host memory", found, errors.Join(err,
		want(found != "", "no page is in host memory alone")))
	return nil
}

// indexed holds a cache, its publisher, and an index that is connected to it through a faulty line.
type indexed struct {
	*stage
	ctx    context.Context
	random *rand.Rand

	pool      *kv.Pool
	publisher *event.Publisher
	line      *line
	indexer   *process.Process
	url       string
	hasher    *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Scanner

	asked, stored, evicted, cleared int
}

func (x *indexed) open() (err error) {
	if err := x.newCache(); err != nil {
		return err
	}
	if x.line, err = newLine(x.publisher.Addr().String()); err != nil {
		return err
	}
	script := filepath.Join(x.work, "hashes.py")
	if err := os.WriteFile(script, hashes, 0o644); err != nil {
		return err
	}
	x.hasher = exec.Command(x.python.Path, script)
	x.hasher.Stderr = os.Stderr
	if x.in, err = x.hasher.StdinPipe(); err != nil {
		return err
	}
	out, err := x.hasher.StdoutPipe()
	if err != nil {
		return err
	}
	x.out = bufio.NewScanner(out)
	x.out.Buffer(nil, 1<<20)
	if err := x.hasher.Start(); err != nil {
		return err
	}
	return x.newIndexer()
}

func (x *indexed) close() {
	if x.indexer != nil {
		x.indexer.Kill()
	}
	if x.in != nil {
		x.in.Close()
		x.hasher.Wait()
	}
	if x.line != nil {
		x.line.close()
	}
	if x.publisher != nil {
		x.publisher.Close()
	}
}

// newCache creates an empty cache, and a publisher at the address of the previous one.
func (x *indexed) newCache() (err error) {
	c := event.Config{Endpoint: "tcp://127.0.0.1:0"}
	if x.publisher != nil {
		c.Endpoint, c.Replay = "tcp://"+x.publisher.Addr().String(), "tcp://"+x.publisher.ReplayAddr().String()
	}
	if x.publisher, err = event.New(c); err != nil {
		return err
	}
	x.pool, err = kv.New(kv.Config{Pages: pages, PageTokens: pageTokens, Reuse: true, Main: "m", Index: "i",
		Listener: x.publisher.Listener(event.GPU)})
	x.publisher.Run(event.Topic("here", model))
	return err
}

// newServer simulates a server that restarts at the same address with an empty cache.
func (x *indexed) newServer() error {
	if err := x.publisher.Close(); err != nil {
		return err
	}
	return x.newCache()
}

// newIndexer replaces the index by an empty one.
func (x *indexed) newIndexer() error {
	if x.indexer != nil {
		x.indexer.Kill()
	}
	if err := x.startIndexer(); err != nil {
		return err
	}
	return x.register(pageTokens, "tcp://"+x.line.address(), "tcp://"+x.publisher.ReplayAddr().String())
}

func (x *indexed) startIndexer() error {
	port, err := freePort()
	if err != nil {
		return err
	}
	x.url = "http://127.0.0.1:" + strconv.Itoa(port)
	if x.indexer, err = x.python.Start("indexer-"+strconv.Itoa(port), "-m", "dynamo.indexer", "--port",
		strconv.Itoa(port), "--threads", "1"); err != nil {
		return err
	}
	return x.indexer.Answers(x.ctx, x.url+"/workers")
}

// register connects the index to a server's events.
func (x *indexed) register(page int, events, replay string) error {
	var ignored any
	return post(x.ctx, x.url+"/register", map[string]any{"instance_id": 1, "model_name": model, "block_size": page,
		"endpoint": events, "replay_endpoint": replay}, &ignored)
}

var salts = []string{"", "", "acme"}

// prompt returns a random prompt; many of them have a common prefix.
func (x *indexed) prompt() []int32 {
	n := 1 + x.random.IntN(10*pageTokens)
	kind := int32(x.random.IntN(12))
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = kind*1000 + int32(i)
		if i/pageTokens > 2 {
			prompt[i] += int32(x.random.IntN(2)) * 500 * int32(i/pageTokens%2)
		}
	}
	return prompt
}

// step stores a random prompt, which evicts others, or clears the cache.
func (x *indexed) step() {
	if x.random.IntN(400) == 0 {
		x.pool.Reset()
		x.cleared++
		return
	}
	prompt, salt := x.prompt(), salts[x.random.IntN(len(salts))]
	before := x.pool.Stats().Evictions
	q, m, err := x.pool.Open(prompt, kv.OpenOptions{Salt: []byte(salt)})
	if err != nil {
		panic(err)
	}
	if err := q.Reserve(len(prompt) - m.Tokens); err == nil {
		err = q.Commit(prompt[m.Tokens:])
		if err != nil {
			panic(err)
		}
		x.stored += len(prompt)/pageTokens - m.Pages
	}
	q.Close()
	x.evicted += int(x.pool.Stats().Evictions - before)
}

// compare queries the index for prompts until it agrees with the cache for all of them, at most a fixed number of
// times.
func (x *indexed) compare() error {
	var err error
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = x.agree(100); err == nil {
			return nil
		}
		// An index that has missed the last frames detects this with the next batch.
		x.step()
	}
	return err
}

func (x *indexed) agree(prompts int) error {
	for range prompts {
		prompt, salt := x.prompt(), salts[x.random.IntN(len(salts))]
		// The cache never matches the last token of a prompt, so one is added; the index matches all tokens.
		m, err := x.pool.Peek(append(prompt, 0), kv.OpenOptions{Salt: []byte(salt)})
		if err != nil {
			return err
		}
		got, err := x.ask(prompt, salt)
		if err != nil {
			return err
		}
		x.asked++
		if got != m.Tokens {
			return fmt.Errorf("the index matches %d tokens of a prompt of %d with salt %q, but the cache matches %d",
				got, len(prompt), salt, m.Tokens)
		}
	}
	return nil
}

// ask returns how many tokens of a prompt are cached according to the index.
func (x *indexed) ask(prompt []int32, salt string) (int, error) {
	if len(prompt) < pageTokens {
		return 0, nil
	}
	var named any
	if salt != "" {
		named = salt
	}
	line, err := json.Marshal([]any{pageTokens, named, prompt})
	if err != nil {
		return 0, err
	}
	if _, err := x.in.Write(append(line, '\n')); err != nil {
		return 0, err
	}
	if !x.out.Scan() {
		return 0, errors.New("the program that computes hashes ended")
	}
	var list []int64
	if err := json.Unmarshal(x.out.Bytes(), &list); err != nil {
		return 0, err
	}
	var got struct {
		Scores map[string]map[string]int
	}
	err = post(x.ctx, x.url+"/query_by_hash", map[string]any{"model_name": model, "block_hashes": list}, &got)
	return got.Scores["1"]["0"], err
}
