package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// prefixes checks that with prefix-aware routing the share of cached tokens is nearly that of a single server, and that
// it is low with round robin.
func (s *stage) prefixes(ctx context.Context) error {
	const conversations, turns = 8, 4 // 8 mod 3 is 2, so turns go to different servers
	alone, err := s.worker(ctx, "alone")
	if err != nil {
		return err
	}
	ideal, err := hits(ctx, alone.URL, conversations, turns)
	alone.Kill()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		policy string
		ok     func(share float64) bool
		want   string
	}{
		{"cache_aware", func(share float64) bool { return share >= .9 }, "at least 90 %"},
		{"round_robin", func(share float64) bool { return share < .4 }, "less than 40 %"},
	} {
		workers, err := s.three(ctx, c.policy)
		if err != nil {
			return err
		}
		r, err := s.smg(ctx, c.policy, c.policy, workers)
		if err != nil {
			endAll(workers)
			return err
		}
		cached, err := hits(ctx, r.url, conversations, turns)
		r.Kill()
		endAll(workers)
		share := float64(cached) / float64(ideal)
		figure := fmt.Sprintf("%.1f %% of %d tokens", 100*share, ideal)
		s.check("SMG "+c.policy+": hits of the ideal, "+c.want, figure,
			errors.Join(err, want(c.ok(share), "%s", figure)))
	}
	return nil
}

// balance checks that 24 concurrent conversations are distributed evenly over three servers.
func (s *stage) balance(ctx context.Context) error {
	workers, err := s.three(ctx, "balance")
	if err != nil {
		return err
	}
	defer endAll(workers)
	r, err := s.smg(ctx, "balance", "cache_aware", workers)
	if err != nil {
		return err
	}
	defer r.Kill()
	const conversations, turns = 24, 4
	err = talkAtOnce(ctx, r.url, 100, conversations, turns)
	var served []float64
	for _, w := range workers {
		n, e := w.metric(ctx, "sparrow_requests_total")
		err, served = errors.Join(err, e), append(served, n)
	}
	mean := float64(conversations*turns) / float64(len(workers))
	even := slices.Min(served) >= .75*mean && slices.Max(served) <= 1.25*mean
	figure := fmt.Sprintf("%v requests", served)
	s.check("SMG: 24 conversations at once, within 25 % of the mean", figure, errors.Join(err,
		want(even, "%s", figure)))
	return nil
}

// talkAtOnce runs conversations concurrently.
func talkAtOnce(ctx context.Context, url string, first uint64, conversations, turns int) (err error) {
	failed := make(chan error, conversations)
	for i := range conversations {
		go func() {
			c := newConversation(first + uint64(i))
			var err error
			for range turns {
				_, e := c.say(ctx, url)
				err = errors.Join(err, e)
			}
			failed <- err
		}()
	}
	for range conversations {
		err = errors.Join(err, <-failed)
	}
	return err
}

// accidents checks that a killed worker loses only its own streams, that a draining worker loses none, and that both
// are used again after a restart.
func (s *stage) accidents(ctx context.Context) error {
	workers, err := s.three(ctx, "accidents")
	if err != nil {
		return err
	}
	defer func() { endAll(workers) }()
	r, err := s.smg(ctx, "accidents", "cache_aware", workers)
	if err != nil {
		return err
	}
	defer r.Kill()
	const long = 800 // tokens of an answer
	victim := workers[1]

	// A killed worker loses its own streams and no others. All answers have begun, so that no stream is retried
	// elsewhere.
	all := startStreams(ctx, r.url, 1000, 12, long)
	all.begun.Wait()
	running, err := counts(ctx, workers, 12)
	if err != nil {
		return err
	}
	victim.Kill()
	lost, why := broken(all.wait())
	figure := fmt.Sprintf("%d of 12 streams, %d ran there", lost, running[1])
	s.check("SMG: a worker killed with -9 costs only its own streams", figure,
		want(lost == running[1] && lost > 0, "%s: %v", figure, why))

	// Later requests must go to the other workers.
	lost, why = broken(startStreams(ctx, r.url, 2000, 9, 30).wait())
	s.check("SMG: requests after it are answered", "9 of 9", want(lost == 0, "%d of 9 failed: %v", lost, why))

	// Start the worker again.
	if err := s.restart(ctx, victim, "accidents-worker-1-again"); err != nil {
		return err
	}
	begun := time.Now()
	s.check("SMG: a restarted worker is used again", "", s.used(ctx, r.url, victim, 3000))
	fmt.Printf("      %-62s %v\n", "after", time.Since(begun).Round(100*time.Millisecond))

	// Draining: running requests must complete, and new ones must go to other workers.
	all = startStreams(ctx, r.url, 4000, 12, long)
	all.begun.Wait()
	if running, err = counts(ctx, workers, 12); err != nil {
		return err
	}
	drained := make(chan error, 1)
	go func() { drained <- victim.End(syscall.SIGTERM) }()
	var during []error
	for i := range 30 {
		during = append(during, stream(ctx, r.url, 5000+uint64(i), 10, func() {}))
		time.Sleep(100 * time.Millisecond)
	}
	lost, why = broken(append(all.wait(), during...))
	figure = fmt.Sprintf("%d of 42 streams lost; %d ran there", lost, running[1])
	s.check("SMG: a worker that drains costs no stream", figure, errors.Join(<-drained,
		want(lost == 0 && running[1] > 0, "%s: %v", figure, why)))
	return nil
}

// counts returns the number of running streams on each worker, once their sum is n.
func counts(ctx context.Context, workers []*worker, n int) (running []int, err error) {
	sum := 0
	for _, w := range workers {
		v, err := w.metric(ctx, "sparrow_requests_running")
		if err != nil {
			return nil, err
		}
		running, sum = append(running, int(v)), sum+int(v)
	}
	return running, want(sum == n, "%v streams run, want %d", running, n)
}

// used starts new conversations until a worker has received a request.
func (s *stage) used(ctx context.Context, url string, w *worker, first uint64) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); first += 6 {
		if _, err := broken(startStreams(ctx, url, first, 6, 10).wait()); err != nil {
			return err
		}
		if n, err := w.metric(ctx, "sparrow_requests_total"); err != nil || n > 0 {
			return err
		}
	}
	return errors.New("no request came within 20 s")
}

// others checks that other routers forward a chat, a stream and a tool call.
func (s *stage) others(ctx context.Context) error {
	w, err := s.worker(ctx, "others")
	if err != nil {
		return err
	}
	defer w.Kill()
	for _, module := range []string{"sglang_router.launch_router", "vllm_router.launch_router", "smg.launch_router"} {
		name, _, _ := strings.Cut(module, ".")
		r, err := s.router(ctx, name, module, []*worker{w})
		if err != nil {
			s.check(name, "", err)
			continue
		}
		_, err = newConversation(1).say(ctx, r.url)
		s.check(name+": a chat", "", err)
		s.check(name+": a stream", "", stream(ctx, r.url, 2, 40, func() {}))
		s.check(name+": a tool call", "", call(ctx, r.url))
		r.Kill()
	}
	return nil
}

// call requests a tool call and reads it.
func call(ctx context.Context, url string) error {
	var got struct {
		Choices []struct {
			Message struct {
				Calls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Reason string `json:"finish_reason"`
		}
	}
	err := post(ctx, url+"/v1/chat/completions", map[string]any{"model": model, "max_tokens": 200, "temperature": 0,
		"messages":    []message{{"user", "What is the weather in Oslo?"}},
		"tool_choice": "required",
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "get_weather",
			"parameters": map[string]any{"type": "object", "required": []string{"city"},
				"properties": map[string]any{"city": map[string]any{"type": "string", "maxLength": 12}}}}}}}, &got)
	if err != nil {
		return err
	}
	if len(got.Choices) != 1 || len(got.Choices[0].Message.Calls) == 0 ||
		got.Choices[0].Message.Calls[0].Function.Name != "get_weather" ||
		!strings.Contains(got.Choices[0].Message.Calls[0].Function.Arguments, `"city"`) {
		return fmt.Errorf("the answer has no call of get_weather: %+v", got)
	}
	return nil
}
