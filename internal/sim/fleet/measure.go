package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"sparrow/api/openai/client"
	"sparrow/internal/sim/formula"
)

// Measured holds the costs measured on real servers.
type Measured struct {
	Info Info
	Cost formula.Cost // costs of a server if the others are idle
	// Capacity is the number of servers that can compute at full speed: on a shared machine, less than the number of
	// servers. It is 0 for a single server.
	Capacity float64
}

// Measure fits the costs of the first server's steps to loads sent to it alone. The same loads are sent alternately to
// all servers, to measure the capacity. Costs of requests outside of steps, and of the client on the same machine, are
// included. prompt is the length of medium prompts in tokens; key is the servers' bearer key, or empty.
func Measure(ctx context.Context, urls []string, key string, prompt int) (*Measured, error) {
	s, err := connect(ctx, urls, key, mostAtOnce)
	if err != nil {
		return nil, fmt.Errorf("fleet: measure: %w", err)
	}
	defer s.close()
	m := &meter{servers: s, draw: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 6)), prompt: prompt}
	var alone, together []Sample
	for round := range 4 {
		for _, l := range m.loads() {
			one, err := m.sample(ctx, s.clients[:1], l)
			if err != nil {
				return nil, fmt.Errorf("fleet: measure: %w", err)
			}
			all := one
			if len(urls) > 1 {
				if all, err = m.sample(ctx, s.clients, l); err != nil {
					return nil, fmt.Errorf("fleet: measure: %w", err)
				}
			}
			if round > 0 { // the first round only creates plans
				alone, together = append(alone, one), append(together, all)
			}
		}
	}
	out := &Measured{Info: s.info}
	if out.Cost, err = Fit(alone); err != nil || len(urls) == 1 {
		return out, err
	}
	n := float64(len(urls))
	out.Capacity = min(n, n*total(alone).Seconds()/total(together).Seconds())
	return out, nil
}

func total(list []Sample) (t time.Duration) {
	for _, s := range list {
		t += s.Took
	}
	return t
}

// meter sends loads. Tokens are random and differ between runs, so that no prompt is cached.
type meter struct {
	*servers
	draw   *rand.Rand
	prompt int
}

// mostAtOnce is the maximum number of concurrent requests of a load.
const mostAtOnce = 16

// load is a number of concurrent requests, with the tokens of their prompts and answers.
type load struct{ requests, prompt, output int }

// loads returns the loads: prompts, decodes after short and after long contexts, and both.
func (m *meter) loads() (out []load) {
	p := m.prompt
	for _, l := range []load{{1, p, 1}, {4, p, 1}, {1, 4 * p, 1}, {1, 8, 48}, {4, 8, 48}, {mostAtOnce, 8, 48},
		{1, 3 * p, 48}, {4, 3 * p, 32}, {8, p / 4, 32}} {
		l.prompt = max(min(l.prompt, m.info.ContextTokens-l.output), 1)
		pages := (l.prompt + l.output + m.info.PageTokens) / m.info.PageTokens
		if l.requests <= m.info.MaxRunning && l.requests*pages*m.info.PageTokens <= m.info.CacheTokens {
			out = append(out, l)
		}
	}
	return out
}

// sample sends a load to each server. The result has the steps and rows of the first server.
func (m *meter) sample(ctx context.Context, to []*client.Client, l load) (Sample, error) {
	before, err := steps(ctx, to[0])
	if err != nil {
		return Sample{}, err
	}
	errs := make([]error, len(to)*l.requests)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range errs {
		prompt := make([]int32, l.prompt)
		for j := range prompt {
			prompt[j] = firstToken + m.draw.Int32N(1<<tokenBits)
		}
		all.Go(func() {
			a, err := m.ask(ctx, to[i%len(to)], prompt, l.output)
			if err == nil && a.output != l.output {
				err = fmt.Errorf("the answer has %d tokens, want %d", a.output, l.output)
			}
			errs[i] = err
		})
	}
	all.Wait()
	took := time.Since(begun)
	after, err := steps(ctx, to[0])
	// The first token of an answer belongs to the prompt's last step. A row attends to its own token and all earlier
	// ones.
	rows := l.prompt + l.output - 1
	return Sample{Steps: after - before, Prompt: l.requests * l.prompt, Decode: l.requests * (l.output - 1),
		Keys: l.requests * rows * (rows + 1) / 2, Took: took}, errors.Join(append(errs, err)...)
}

// steps returns the number of steps that a server has run.
func steps(ctx context.Context, c *client.Client) (int, error) {
	resp, err := c.Send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "sparrow_steps_total "); ok {
			v, err := strconv.ParseFloat(n, 64)
			return int(v), err
		}
	}
	return 0, fmt.Errorf("%s/metrics has no sparrow_steps_total: only costs of Sparrow's servers can be measured",
		c.Base())
}
