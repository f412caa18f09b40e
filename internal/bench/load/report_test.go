package load

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"sparrow/api/openai"
	"sparrow/api/openai/client"
)

// Options at their limits are valid; one step beyond a limit, exactly one problem is reported.
func TestOptionsHaveExactLimits(t *testing.T) {
	valid := func() Options {
		return Options{URL: "http://LocalHost:1/v1", Requests: 1, Rate: 0.5, Prompt: Lengths{1, 1},
			Output: Lengths{1, 1}, Groups: 1, Turns: Lengths{1, 1}, Temperature: 2, TopP: 1}
	}
	o := valid()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"there are -1 streams of 0 choices":                   func(o *Options) { o.Streams = -1 },
		"there are 0 streams of -1 choices":                   func(o *Options) { o.StreamChoices = -1 },
		"the number of requests is 0":                         func(o *Options) { o.Requests = 0 },
		"neither a rate nor a concurrency":                    func(o *Options) { o.Rate = 0 },
		"the rate is -1":                                      func(o *Options) { o.Rate = -1 },
		"the rate is NaN":                                     func(o *Options) { o.Rate = math.NaN() },
		"the rate is +Inf":                                    func(o *Options) { o.Rate = math.Inf(1) },
		"the concurrency is -1":                               func(o *Options) { o.Rate, o.Concurrency = 0, -1 },
		"the duration is 0s and the timeout -1ns":             func(o *Options) { o.Timeout = -1 },
		"the duration is -1ns and the timeout 0s":             func(o *Options) { o.Duration = -1 },
		"prompts have 0 tokens":                               func(o *Options) { o.Prompt = Lengths{0, 0} },
		"prompts have uniform:2-1 tokens":                     func(o *Options) { o.Prompt = Lengths{2, 1} },
		"answers have uniform:0-1 tokens":                     func(o *Options) { o.Output = Lengths{0, 1} },
		"conversations have uniform:0-1 turns":                func(o *Options) { o.Turns = Lengths{0, 1} },
		"conversations have uniform:3-2 turns":                func(o *Options) { o.Turns = Lengths{3, 2} },
		"the temperature is 2.1":                              func(o *Options) { o.Temperature = 2.1 },
		"the temperature is -0.1":                             func(o *Options) { o.Temperature = -0.1 },
		"top_p 1.1":                                           func(o *Options) { o.TopP = 1.1 },
		"top_p -0.1":                                          func(o *Options) { o.TopP = -0.1 },
		"the goals are":                                       func(o *Options) { o.Goals.EndToEnd = -1 },
		"the shared prefix has -1 tokens in 1 groups":         func(o *Options) { o.SharedPrefix = -1 },
		"the shared prefix has 0 tokens in 0 groups":          func(o *Options) { o.Groups = 0 },
		"a load test of another machine needs --allow-remote": func(o *Options) { o.URL = "http://example.org" },
	} {
		o := valid()
		change(&o)
		err := o.Validate()
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", want, err)
		}
	}
	for name, ok := range map[string]bool{"localhost": true, "127.0.0.2": true, "::1": true, "::ffff:127.0.0.1": true,
		"128.0.0.1": false, "localhost.example": false, "": false} {
		if isLoopback(name) != ok {
			t.Errorf("%q is this machine: %v", name, !ok)
		}
	}
}

// full is a report in which every number differs.
var full = &Report{URL: "http://h", Model: "m", Rate: 2.5, Planned: 9, Sent: 8, Answered: 7,
	Errors: map[string]int{"timeout": 1, "503": 2}, Samples: map[string]string{"timeout": "late", "503": "busy"},
	Seconds: 4, PromptTokens: 100, CachedTokens: 25, OutputTokens: 60, Short: 3, RequestsPerSecond: 1.75,
	InputPerSecond: 25, OutputPerSecond: 15, CachedShare: 0.25,
	FirstToken: Times{Count: 7, Mean: 11, P50: 12, P90: 13, P99: 14, Max: 15},
	InterToken: Times{Count: 7, Mean: 21, P50: 22, P90: 23, P99: 24, Max: 25},
	PerToken:   Times{Count: 7, Mean: 31, P50: 32, P90: 33, P99: 34, Max: 35},
	EndToEnd:   Times{Count: 7, Mean: 41, P50: 42, P90: 43, P99: 44, Max: 45},
	Goals:      "ttft=1s", Good: 5, Goodput: 1.25,
	Beside: &Beside{Streams: 6, TokensPerSecond: 17, Alone: Times{Mean: 51, P50: 52, P90: 53, P99: 54, Max: 55},
		During: Times{Mean: 61, P50: 62, P90: 63, P99: 64, Max: 65}, LongestStep: 71}}

// A report is written with every number in its place.
func TestReportsAreWritten(t *testing.T) {
	var b strings.Builder
	if err := full.Print(&b); err != nil {
		t.Fatal(err)
	}
	const want = `m at http://h: 7 of 9 requests answered in 4.00 s
throughput: 1.75 requests/s, 25.0 tokens/s in, 15.0 tokens/s out
tokens: 100 in (25 from the prefix cache, 25.0 %), 60 out
short: 3 of 7 answers have fewer tokens than requested; the server's context may be too small

      milliseconds   mean    p50    p90    p99    max
       first token  11.00  12.00  13.00  14.00  15.00
    between tokens  21.00  22.00  23.00  24.00  25.00
  per output token  31.00  32.00  33.00  34.00  35.00
      whole answer  41.00  42.00  43.00  44.00  45.00

goodput: 1.25 requests/s; 5 of 9 meet ttft=1s

6 streams during the load, 17.0 events/s
  gaps in milliseconds   mean    p50    p90    p99    max
       before the load  51.00  52.00  53.00  54.00  55.00
       during the load  61.00  62.00  63.00  64.00  65.00
longest step that streams waited for: 71.00 ms

not sent: 1 of 9 requests

errors:
  503: 2, such as busy
  timeout: 1, such as late
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := (&Report{URL: "u", Model: "m", Planned: 1, Sent: 1, Answered: 1}).Print(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(b.String(), "max\n\nerrors: none\n") || strings.Contains(b.String(), "not sent") {
		t.Errorf("without errors: %s", b.String())
	}
}

// The reports of several loads are a table with a row for each; remarks name the load by its number.
func TestSweepsAreWritten(t *testing.T) {
	plain := &Report{Concurrency: 4, Planned: 3, Answered: 2, RequestsPerSecond: 0.5, Goals: "ttft=1s", Goodput: 0.75}
	var b strings.Builder
	if err := PrintSweep(&b, []*Report{plain, full}); err != nil {
		t.Fatal(err)
	}
	full := *full
	full.Goals = ""
	if err := PrintSweep(&b, []*Report{&full}); err != nil {
		t.Fatal(err)
	}
	if err := PrintSweep(&b, nil); err != nil {
		t.Fatal(err)
	}
	const want = `at ; times in milliseconds

load answered requests/s tokens/s in tokens/s out cached first token p50 p99 per token p50 p99 goodput
4 in flight 2 of 3 0.50 0.0 0.0 0 % 0.0 0.0 0.00 0.00 0.75
2.5/s 7 of 9 1.75 25.0 15.0 25 % 12.0 14.0 32.00 34.00 1.25

goodput: requests per second that meet ttft=1s
load 2: short: 3 of 7 answers have fewer tokens than requested; the server's context may be too small
error 503: 2, such as busy
error timeout: 1, such as late
m at http://h; times in milliseconds

load answered requests/s tokens/s in tokens/s out cached first token p50 p99 per token p50 p99
2.5/s 7 of 9 1.75 25.0 15.0 25 % 12.0 14.0 32.00 34.00
load 1: short: 3 of 7 answers have fewer tokens than requested; the server's context may be too small
error 503: 2, such as busy
error timeout: 1, such as late
`
	var lines []string // without the padding of columns
	for line := range strings.SplitSeq(b.String(), "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Counts and rates follow from the outcomes: an answer of one token has no time per token, and an answer of fewer
// tokens than requested is short, unless answers end by themselves.
func TestReportsSumOutcomes(t *testing.T) {
	answer := func(prompt, cached, asked, got int, first, last, end time.Duration) outcome {
		o := outcome{first: first, last: last, end: end, asked: asked}
		o.usage.PromptTokens, o.usage.CompletionTokens = prompt, got
		o.usage.PromptTokensDetails = &openai.PromptTokensDetails{CachedTokens: cached}
		return o
	}
	c, err := client.New("http://127.0.0.1:1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	r := &runner{o: &Options{Goals: Goals{FirstToken: 20 * ms, PerToken: 10 * ms, EndToEnd: 100 * ms}}, total: 7,
		caller: &caller{Client: c}, outcomes: []outcome{
			answer(10, 5, 3, 3, 20*ms, 40*ms, 100*ms), // at every limit
			answer(10, 0, 3, 2, 21*ms, 30*ms, 50*ms),  // late and short
			answer(10, 0, 3, 3, 10*ms, 31*ms, 50*ms),  // slow
			answer(10, 0, 1, 1, 10*ms, 10*ms, 101*ms), // long
			{failure: "503", message: "busy"}, {failure: "503", message: "still busy"},
		}}
	for _, ends := range []bool{false, true} {
		r.o.StopAtEOS = ends
		got := r.report("m", 2*time.Second)
		short := 1
		if ends {
			short = 0
		}
		if got.Planned != 7 || got.Sent != 6 || got.Answered != 4 || got.Errors["503"] != 2 ||
			got.Samples["503"] != "busy" || got.PromptTokens != 40 || got.CachedTokens != 5 || got.OutputTokens != 9 ||
			got.Short != short || got.Good != 1 {
			t.Errorf("%+v", got)
		}
		if got.RequestsPerSecond != 2 || got.InputPerSecond != 20 || got.OutputPerSecond != 4.5 ||
			got.CachedShare != 0.125 || got.Goodput != 0.5 {
			t.Errorf("rates: %+v", got)
		}
		if got.FirstToken.Count != 4 || got.PerToken.Count != 3 || got.PerToken.Max != 10.5 || got.EndToEnd.Max != 101 {
			t.Errorf("times: %+v", got)
		}
	}
}
