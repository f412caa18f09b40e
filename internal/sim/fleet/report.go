package fleet

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"sparrow/engine"
)

// Report holds the results of a simulation or of Replay.
type Report struct {
	Requests     int           `json:"requests"`
	Took         time.Duration `json:"took_ns"`
	OutputTokens int64         `json:"output_tokens"`
	PromptTokens int64         `json:"prompt_tokens"`
	CachedTokens int64         `json:"cached_tokens"`
	Refused      int           `json:"refused"`  // refused requests, which were sent again after a second
	Resent       int           `json:"resent"`   // requests that were sent again because their replica failed
	TooLong      int           `json:"too_long"` // conversations that ended because the context was full
	// TokensPerSecond is output tokens / total time, HitShare the share of prompt tokens that were cached.
	TokensPerSecond float64 `json:"tokens_per_second"`
	HitShare        float64 `json:"hit_share"`
	FirstToken      Times   `json:"first_token"`
	EachToken       Times   `json:"each_token"` // times between tokens, after the first token
	Replicas        []Share `json:"replicas"`

	first, each []time.Duration
}

// Times holds percentiles of a distribution of times.
type Times struct {
	Median time.Duration `json:"p50_ns"`
	P90    time.Duration `json:"p90_ns"`
	P99    time.Duration `json:"p99_ns"`
}

// Share holds the counters of one replica.
type Share struct {
	Requests     int64         `json:"requests"`
	OutputTokens int64         `json:"output_tokens"`
	PromptTokens int64         `json:"prompt_tokens"`
	CachedTokens int64         `json:"cached_tokens"`
	Preempted    int64         `json:"preempted"`
	Busy         time.Duration `json:"busy_ns"`
}

func (l *Share) add(s engine.Stats) {
	l.Requests += s.Requests
	l.OutputTokens += s.OutputTokens
	l.PromptTokens += s.PromptTokens
	l.CachedTokens += s.CachedTokens
	l.Preempted += s.Preempted
	l.Busy += s.Busy
}

// answer holds the token counts and times of one turn.
type answer struct {
	prompt, cached, output int
	tokens                 []int32
	first, took            time.Duration // times from sending the request to the first token and to the end
}

// count adds a turn to the report.
func (r *Report) count(a answer) {
	r.Requests++
	r.OutputTokens += int64(a.output)
	r.PromptTokens += int64(a.prompt)
	r.CachedTokens += int64(a.cached)
	r.first = append(r.first, a.first)
	if n := len(a.tokens); n > 1 {
		r.each = append(r.each, (a.took-a.first)/time.Duration(n-1))
	}
}

// count adds a turn to the replica's counters.
func (l *Share) count(a answer) {
	l.Requests++
	l.OutputTokens += int64(a.output)
	l.PromptTokens += int64(a.prompt)
	l.CachedTokens += int64(a.cached)
}

func (r *Report) finish() {
	if r.Took > 0 {
		r.TokensPerSecond = float64(r.OutputTokens) / r.Took.Seconds()
	}
	r.HitShare = float64(r.CachedTokens) / float64(max(r.PromptTokens, 1))
	r.FirstToken, r.EachToken = distribution(r.first), distribution(r.each)
}

func distribution(list []time.Duration) Times {
	if len(list) == 0 {
		return Times{}
	}
	slices.Sort(list)
	at := func(share float64) time.Duration {
		return list[min(int(math.Ceil(share*float64(len(list))))-1, len(list)-1)]
	}
	return Times{at(0.5), at(0.9), at(0.99)}
}

// Print writes the report as plain text.
func (r *Report) Print(w io.Writer) error {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }
	fmt.Fprintf(w, "%d requests in %.1f s: %.0f tokens/s; %.1f %% of %d prompt tokens were cached\n",
		r.Requests, r.Took.Seconds(), r.TokensPerSecond, 100*r.HitShare, r.PromptTokens)
	fmt.Fprintf(w, "first token: median %s, 90 %% %s, 99 %% %s; each further token: median %s, 99 %% %s\n",
		ms(r.FirstToken.Median), ms(r.FirstToken.P90), ms(r.FirstToken.P99), ms(r.EachToken.Median),
		ms(r.EachToken.P99))
	if r.Refused+r.Resent+r.TooLong > 0 {
		fmt.Fprintf(w, "%d requests were refused by a full queue, %d answers were lost with their replica and sent "+
			"again, %d conversations exceeded the context\n", r.Refused, r.Resent, r.TooLong)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "replica\trequests\toutput tokens\tcached\tpreempted\tbusy\t")
	for i, l := range r.Replicas {
		fmt.Fprintf(t, "%d\t%d\t%d\t%.0f %%\t%d\t%.0f %%\t\n", i, l.Requests, l.OutputTokens,
			100*float64(l.CachedTokens)/float64(max(l.PromptTokens, 1)), l.Preempted,
			100*l.Busy.Seconds()/max(r.Took.Seconds(), 1e-9))
	}
	return t.Flush()
}
