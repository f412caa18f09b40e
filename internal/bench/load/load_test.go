package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func options(f *fake) Options {
	return Options{URL: "http://127.0.0.1:1", dial: f.net.Dial, Requests: 12, Concurrency: 3, Prompt: Lengths{10, 10},
		Output: Lengths{4, 4}, Groups: 1, Seed: 1}
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryRequestIsSentAsAskedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 20 * time.Millisecond, between: 2 * time.Millisecond})
		o := options(f)
		o.URL, o.Key, o.Temperature, o.TopP = o.URL+"/v1/", "secret", 0.7, 0.95
		o.Prompt, o.Output, o.SharedPrefix, o.Groups = Lengths{5, 9}, Lengths{2, 6}, 8, 3
		calls := 0
		o.OnDone = func(done, total int) {
			if calls++; done != calls || total != o.Requests {
				t.Errorf("progress is %d of %d after %d calls", done, total, calls)
			}
		}
		r := run(t, o)
		if r.Answered != 12 || r.Sent != 12 || len(r.Errors) != 0 || calls != 12 || r.Model != "fake-model" {
			t.Fatalf("report %+v, progress called %d times", r, calls)
		}
		prefixes, in, out, cached := map[string]int{}, int64(0), int64(0), int64(0)
		for _, q := range f.received {
			own := len(q.Prompt) - o.SharedPrefix
			if own < 5 || own > 9 || q.MaxTokens < 2 || q.MaxTokens > 6 {
				t.Errorf("a request has a prompt of %d tokens and an answer of %d tokens", len(q.Prompt), q.MaxTokens)
			}
			if !q.Stream || !q.IgnoreEOS || !q.StreamOptions.IncludeUsage || q.Temperature != 0.7 || q.TopP != 0.95 ||
				q.Model != "fake-model" || q.key != "Bearer secret" {
				t.Errorf("sent %+v", q)
			}
			for _, id := range q.Prompt {
				if id < 1001 || id > 1004 {
					t.Errorf("the prompt has id %d, which the server did not return", id)
				}
			}
			prefixes[fmt.Sprint(q.Prompt[:o.SharedPrefix])]++
			in, out, cached = in+int64(len(q.Prompt)), out+int64(q.MaxTokens), cached+int64(len(q.Prompt)/2)
		}
		if len(prefixes) != 3 {
			t.Errorf("%d shared prefixes, want 3 groups: %v", len(prefixes), prefixes)
		}
		for p, n := range prefixes {
			if n != 4 {
				t.Errorf("prefix %s was used %d times, want 4", p, n)
			}
		}
		if r.PromptTokens != in || r.OutputTokens != out || r.CachedTokens != cached ||
			r.CachedShare != float64(cached)/float64(in) {
			t.Errorf("%d prompt tokens, %d output tokens, %d cached, share %g; want %d, %d, %d", r.PromptTokens,
				r.OutputTokens,
				r.CachedTokens, r.CachedShare, in, out, cached)
		}
		if r.FirstToken.Count != 12 || r.FirstToken.P50 < 20 || r.InterToken.Count != int(out)-12 ||
			r.InterToken.P50 < 1.5 || r.EndToEnd.P50 < r.FirstToken.P50 {
			t.Errorf("times %+v, %+v, %+v", r.FirstToken, r.InterToken, r.EndToEnd)
		}
	})
}

// Tokens without text are also counted if the server reports usage.
func TestTokensAreCountedByUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 20 * time.Millisecond, between: 2 * time.Millisecond, counts: true})
		o := options(f)
		o.Output = Lengths{5, 5}
		r := run(t, o)
		if r.Answered != 12 || r.InterToken.Count != 4*12 || r.InterToken.P50 != 2 || r.InterToken.Max != 2 ||
			r.PerToken.P50 != 2 || r.FirstToken.P50 != 20 {
			t.Errorf("%+v", r)
		}
	})
}

// An answer that was cut off by the context limit is counted as short; an answer that the model ended is not.
func TestShortAnswersAreCounted(t *testing.T) {
	for _, c := range []struct {
		room, short int
		eos         bool
	}{{0, 0, false}, {3, 12, false}, {3, 0, true}} {
		synctest.Test(t, func(t *testing.T) {
			o := options(newFake(t, &fake{first: time.Millisecond, room: c.room}))
			o.Output, o.StopAtEOS = Lengths{4, 6}, c.eos
			r := run(t, o)
			var text strings.Builder
			if err := r.Print(&text); err != nil {
				t.Fatal(err)
			}
			if r.Answered != 12 || r.Short != c.short ||
				strings.Contains(text.String(), "short: 12 of 12 answers") != (c.short > 0) {
				t.Errorf("room for %d tokens: %d short answers\n%s", c.room, r.Short, text.String())
			}
		})
	}
}

func TestSameSeedSamePrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prompts := func(seed uint64) []string {
			f := newFake(t, &fake{noTokenizer: true})
			o := options(f)
			o.Seed, o.Prompt, o.StopAtEOS = seed, Lengths{5, 50}, true
			run(t, o)
			var all []string
			for _, q := range f.received {
				all = append(all, fmt.Sprint(q.Prompt, q.MaxTokens))
				if q.IgnoreEOS {
					t.Error("ignore_eos was sent")
				}
			}
			slices.Sort(all) // the server may receive requests in another order
			return all
		}
		a, b, c := prompts(1), prompts(1), prompts(2)
		if !slices.Equal(a, b) {
			t.Error("one seed gave two different loads")
		}
		if slices.Equal(a, c) {
			t.Error("two seeds gave equal loads")
		}
	})
}

func TestConcurrencyIsKeptAndNotExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 10 * time.Millisecond})
		o := options(f)
		o.Requests, o.Concurrency = 20, 4
		run(t, o)
		if f.most != 4 {
			t.Errorf("%d requests at the same time, want 4", f.most)
		}
	})
}

// Arrivals do not wait for answers, their gaps vary, and their mean matches the rate.
func TestArrivalsFollowTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 4000, 50.0
		next := (&runner{o: &Options{Rate: rate, Seed: 3}}).arrivals()
		start := time.Now()
		var gaps []time.Duration
		for last := start; len(gaps) < n; last = time.Now() {
			if _, ok := next(t.Context()); !ok {
				t.Fatal("the gate closed")
			}
			gaps = append(gaps, time.Since(last))
		}
		if mean := time.Since(start).Seconds() / n * rate; mean < 0.95 || mean > 1.05 {
			t.Errorf("gaps are %g times the configured mean", mean)
		}
		// In an exponential distribution a share of 1 - 1/e is below the mean.
		below := 0
		for _, g := range gaps {
			if g.Seconds() < 1/rate {
				below++
			}
		}
		if share := float64(below) / n; share < 0.60 || share > 0.66 {
			t.Errorf("a share of %g of the gaps is below the mean, want 0.632", share)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok := next(ctx); ok {
			t.Error("the gate stays open after the end")
		}
	})
}

func TestRateSendsWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 200 * time.Millisecond})
		o := options(f)
		o.Concurrency, o.Rate = 0, 1000
		run(t, o)
		if f.most != 12 { // 12 requests arrive within 200 ms
			t.Errorf("at most %d requests ran at the same time, want 12: arrivals waited for answers", f.most)
		}
	})
}

func TestErrorsAreSortedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: time.Millisecond, refuse: func(i int, w http.ResponseWriter) bool {
			switch i {
			case 0, 1:
				http.Error(w, `{"error":{"message":"busy"}}`, http.StatusTooManyRequests)
			case 2:
				http.Error(w, "broken", http.StatusInternalServerError)
			case 3:
				fmt.Fprint(w, "data: {\"error\":{\"message\":\"step failed\"}}\n\n")
			case 4:
				fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n")
			case 5:
				time.Sleep(400 * time.Millisecond)
			case 6:
				fmt.Fprint(w, "data: {not json\n\n")
			case 7:
				panic(http.ErrAbortHandler)
			default:
				return false
			}
			return true
		}})
		o := options(f)
		o.Timeout = 200 * time.Millisecond
		r := run(t, o)
		want := map[string]int{"429": 2, "500": 1, "stream": 3, "timeout": 1, "connection": 1}
		if fmt.Sprint(r.Errors) != fmt.Sprint(want) || r.Answered != 4 || r.Sent != 12 {
			t.Errorf("errors %v, %d answered of %d sent; want %v and 4 of 12", r.Errors, r.Answered, r.Sent, want)
		}
		if !strings.Contains(r.Samples["429"], "busy") {
			t.Errorf("samples %v", r.Samples)
		}
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"4 of 12 requests answered", "429: 2, such as status 429", "first token", "p99"} {
			if !strings.Contains(text.String(), part) {
				t.Errorf("the report lacks %q:\n%s", part, &text)
			}
		}
	})
}

func TestDurationEndsTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 40 * time.Millisecond})
		o := options(f)
		o.Requests, o.Concurrency, o.Duration = 1000, 1, 100*time.Millisecond
		r := run(t, o)
		if r.Sent != 3 || r.Answered != r.Sent || r.Planned != 1000 {
			t.Errorf("%d requests sent, %d answered; want 3, all answered", r.Sent, r.Answered)
		}
	})
}

func TestCancelledRunStillReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: time.Millisecond, between: 10 * time.Second})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		r, err := Run(ctx, options(f))
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors["cancelled"] != 3 || time.Since(start) != 100*time.Millisecond {
			t.Errorf("report %+v after %v", r, time.Since(start))
		}
	})
}

func TestOtherMachinesAreRefused(t *testing.T) {
	for _, url := range []string{"http://192.0.2.1:80", "http://example.org", "http://[2001:db8::1]:80",
		"http://0.0.0.0:80"} {
		o := Options{URL: url, Requests: 1, Concurrency: 1, Prompt: Lengths{1, 1}, Output: Lengths{1, 1}, Groups: 1}
		if _, err := Run(context.Background(), o); !errors.Is(err, ErrRemote) || !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", url, err)
		}
		o.AllowRemote = true
		if err := o.Validate(); err != nil {
			t.Errorf("%s with remote addresses allowed: error %v", url, err)
		}
	}
	// Redirects to another address are not followed.
	f := newFake(t, &fake{refuse: func(_ int, w http.ResponseWriter) bool {
		w.Header().Set("Location", "http://192.0.2.1:9/v1/completions")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	}})
	hs := httptest.NewServer(f)
	defer hs.Close()
	o := options(f)
	o.URL, o.dial = hs.URL, nil // the default dial function has the check under test
	o.Requests = 1
	if r := run(t, o); !strings.Contains(r.Samples["connection"], ErrRemote.Error()) {
		t.Errorf("a redirect to another machine: errors %v, samples %v", r.Errors, r.Samples)
	}
}

func TestOptionsReportEveryProblem(t *testing.T) {
	o := Options{URL: "ftp://x", Rate: 1, Concurrency: 1, Duration: -1, SharedPrefix: -1, TopP: 2}
	err := o.Validate()
	if !errors.Is(err, ErrOptions) {
		t.Fatal(err)
	}
	for _, part := range []string{`url "ftp://x"`, "requests is 0", "both a rate", "duration is -1ns", "top_p 2",
		"prompts have 0", "answers have 0", "shared prefix has -1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the error %v", part, err)
		}
	}
	f := newFake(t, &fake{})
	f.net.Close()
	if _, err := Run(context.Background(), options(f)); !errors.Is(err, ErrServer) {
		t.Errorf("a server that does not listen: error %v", err)
	}
}

func TestParseLengths(t *testing.T) {
	for text, want := range map[string]Lengths{"1": {1, 1}, "256": {256, 256}, "uniform:1-1": {1, 1},
		"uniform:100-400": {100, 400}} {
		if got, err := ParseLengths(text); err != nil || got != want {
			t.Errorf("%s was parsed as %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-3", "x", "1-2", "uniform:5", "uniform:5-2", "uniform:a-b", "normal:1-2",
		"uniform:-1-2"} {
		if got, err := ParseLengths(text); !errors.Is(err, ErrOptions) {
			t.Errorf("%q was parsed as %v, error %v", text, got, err)
		}
	}
	if s := (Lengths{3, 9}).String() + (Lengths{2, 2}).String(); s != "uniform:3-92" {
		t.Error(s)
	}
}

func TestPercentilesAreValuesThatOccurred(t *testing.T) {
	list := func(n int) []time.Duration {
		var d []time.Duration
		for i := n; i > 0; i-- {
			d = append(d, time.Duration(i)*time.Millisecond)
		}
		return d
	}
	for n, want := range map[int]Times{
		0: {}, 1: {1, 1, 1, 1, 1, 1}, 2: {2, 1.5, 1, 2, 2, 2}, 10: {10, 5.5, 5, 9, 10, 10},
		100: {100, 50.5, 50, 90, 99, 100}, 101: {101, 51, 51, 91, 100, 101},
	} {
		if got := summarise(list(n)); got != want {
			t.Errorf("1 to %d ms: %+v, want %+v", n, got, want)
		}
	}
}

// Streams run during the whole load, from before it begins until it ends, and their gaps are reported separately.
func TestStreamsBesideTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 20 * time.Millisecond, between: 2 * time.Millisecond, counts: true})
		o := options(f)
		o.Streams, o.Prompt, o.Key, o.StreamKey, o.StreamChoices = 3, Lengths{100, 100}, "ours", "theirs", 2
		r := run(t, o)
		b := r.Beside
		if b == nil || b.Streams != 3 || r.Answered != o.Requests {
			t.Fatalf("%d requests answered, streams %+v", r.Answered, b)
		}
		if b.Alone.Max != 2 || b.During.P50 != 2 {
			t.Errorf("gaps %+v before and %+v during the load, want 2 ms", b.Alone, b.During)
		}
		want := 3 * int(1000*r.Seconds/2) // each stream has one event every 2 ms
		if n := b.During.Count; n < want-6 || n > want+6 || b.Alone.Count < 1000 {
			t.Errorf("%d gaps during %.3f s and %d before, want %d and 3000", n, r.Seconds, b.Alone.Count, want)
		}
		short := 0
		for _, q := range f.received {
			beside := len(q.Prompt) == besidePrompt
			if beside {
				short++
			}
			if want := map[bool]string{true: "Bearer theirs", false: "Bearer ours"}[beside]; q.key != want ||
				beside != (q.N == 2) {
				t.Errorf("a prompt of %d tokens has key %q and %d choices", len(q.Prompt), q.key, q.N)
			}
		}
		if short < 3 {
			t.Errorf("%d requests of streams, want 3", short)
		}
	})
}

// If the server queues streams, the run ends with an error instead of waiting.
func TestStreamsThatAreQueuedAreAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		f := newFake(t, &fake{between: 10 * time.Millisecond, refuse: func(i int, _ http.ResponseWriter) bool {
			if i >= 2 {
				<-stop
			}
			return i >= 2
		}})
		defer close(stop)
		o := options(f)
		o.Streams = 3
		start := time.Now()
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrQueued) ||
			!strings.Contains(err.Error(), "2 of 3 streams") {
			t.Errorf("error %v, want %v", err, ErrQueued)
		}
		if took := time.Since(start); took > 2*besideStart {
			t.Errorf("took %v", took)
		}
	})
}

// A run that was interrupted before its first request does not report that there were no errors.
func TestInterruptedBeforeTheFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := options(newFake(t, &fake{between: time.Millisecond}))
		o.Streams = 1
		time.AfterFunc(time.Second, cancel)
		r, err := Run(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil || strings.Contains(b.String(), "errors: none") ||
			!strings.Contains(b.String(), fmt.Sprintf("not sent: %d of %[1]d requests", o.Requests)) {
			t.Errorf("error %v, printed %s", err, &b)
		}
	})
}

// A turn repeats the earlier conversation, including its answers. Conversations of a group have a common prefix.
func TestConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, &fake{first: 20 * time.Millisecond})
		o := options(f)
		o.Requests, o.Turns, o.SharedPrefix = 5, Lengths{2, 4}, 6
		o.Goals = Goals{FirstToken: 25 * time.Millisecond}
		total := 0
		o.OnDone = func(_, all int) { total = all }
		r := run(t, o)
		if r.Answered != len(f.chats) || r.Planned != r.Answered || total != r.Planned || r.Answered < 10 ||
			r.Answered > 20 || r.OutputTokens != int64(r.Answered) || r.Good != r.Answered || r.Goodput == 0 {
			t.Fatalf("%d chat requests, report %+v", len(f.chats), r)
		}
		first := map[string]bool{}
		for _, messages := range f.chats {
			if len(messages)%2 != 1 {
				t.Fatalf("a conversation has %d messages", len(messages))
			}
			words := strings.Fields(messages[0].Content.Text())
			if len(words) != 16 {
				t.Errorf("the first message has %d words, want 6 that are shared and 10", len(words))
			}
			first[strings.Join(words[:6], " ")] = true
			for i := 1; i < len(messages); i += 2 {
				if got := messages[i].Content.Text(); messages[i].Role != "assistant" || got != fmt.Sprint(i) {
					t.Errorf("message %d is %q", i, got)
				}
			}
		}
		if len(first) != 1 {
			t.Errorf("conversations of a group begin with %v", first)
		}
		o.Goals = Goals{FirstToken: 15 * time.Millisecond}
		if r := run(t, o); r.Good != 0 || r.Goodput != 0 || r.Goals != "ttft=15ms" {
			t.Errorf("%d of %d requests count as good within %s", r.Good, r.Answered, r.Goals)
		}
	})
}

func TestParseGoals(t *testing.T) {
	g, err := ParseGoals("ttft=500ms, tpot=40ms,e2e=1m0s")
	if want := (Goals{500 * time.Millisecond, 40 * time.Millisecond, time.Minute}); err != nil || g != want ||
		g.String() != "ttft=500ms,tpot=40ms,e2e=1m0s" {
		t.Errorf("%v, %v", g, err)
	}
	if g, err := ParseGoals(""); err != nil || g != (Goals{}) || g.String() != "" {
		t.Errorf("no goals: %v, %v", g, err)
	}
	for _, s := range []string{"ttft", "ttft=5", "ttft=-1s", "e2e=0s", "itl=1s", "ttft=1s,ttft=2s", ","} {
		if _, err := ParseGoals(s); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
