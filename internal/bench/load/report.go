package load

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// Report holds the measurements of a run. Times are in milliseconds and cover only successful requests.
type Report struct {
	URL   string `json:"url"`
	Model string `json:"model"`

	Rate        float64 `json:"rate,omitempty"`        // requested arrivals per second
	Concurrency int     `json:"concurrency,omitempty"` // requested number of concurrent requests

	Planned  int            `json:"planned"` // number of requests to send
	Sent     int            `json:"sent"`
	Answered int            `json:"answered"`
	Errors   map[string]int `json:"errors"` // failures by status, or "timeout", "cancelled", "connection", "stream"
	// Samples holds one message for each key of Errors.
	Samples map[string]string `json:"error_samples,omitempty"`
	Seconds float64           `json:"seconds"` // time from the first request to the last answer

	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Short counts answers with fewer tokens than requested, for example because the context was full. It is 0 with
	// StopAtEOS.
	Short int `json:"short_answers,omitempty"`

	RequestsPerSecond float64 `json:"requests_per_second"`
	InputPerSecond    float64 `json:"input_tokens_per_second"`
	OutputPerSecond   float64 `json:"output_tokens_per_second"`
	CachedShare       float64 `json:"cached_share"` // share of prompt tokens from the server's prefix cache, 0 to 1

	// FirstToken is the time from sending a request to its first token. InterToken is the time between two tokens.
	// PerToken is, for each request, the mean time per token after the first. EndToEnd is the time from sending to the
	// end of the answer. Tokens are counted by usage if every event has it, otherwise by pieces of text.
	FirstToken Times `json:"ttft_ms"`
	InterToken Times `json:"inter_token_ms"`
	PerToken   Times `json:"per_output_token_ms"`
	EndToEnd   Times `json:"end_to_end_ms"`
	// Goals holds the latency limits as text. Good is the number of requests that met all of them, Goodput their number
	// per second.
	Goals   string  `json:"goals,omitempty"`
	Good    int     `json:"good,omitempty"`
	Goodput float64 `json:"goodput,omitempty"`
	// Beside holds the results of the background streams, or nil without them.
	Beside *Beside `json:"beside,omitempty"`
}

// Times summarises durations, in milliseconds. The p-th percentile is the smallest value that at least p percent of the
// values do not exceed.
type Times struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// report returns the summary of all outcomes.
func (r *runner) report(model string, took time.Duration) *Report {
	out := &Report{URL: r.caller.Base(), Model: model, Rate: r.o.Rate, Concurrency: r.o.Concurrency, Planned: r.total,
		Sent: len(r.outcomes), Errors: map[string]int{}, Seconds: took.Seconds(), Goals: r.o.Goals.String()}
	var first, gaps, per, end []time.Duration
	for i := range r.outcomes {
		o := &r.outcomes[i]
		if o.failure != "" {
			out.fail(o)
			continue
		}
		out.Answered++
		out.PromptTokens += int64(o.usage.PromptTokens)
		out.OutputTokens += int64(o.usage.CompletionTokens)
		if !r.o.StopAtEOS && o.usage.CompletionTokens < o.asked {
			out.Short++
		}
		if d := o.usage.PromptTokensDetails; d != nil {
			out.CachedTokens += int64(d.CachedTokens)
		}
		first, gaps, end = append(first, o.first), append(gaps, o.gaps...), append(end, o.end)
		if o.usage.CompletionTokens > 1 {
			per = append(per, o.perToken())
		}
		if out.Goals != "" && r.o.Goals.met(o) {
			out.Good++
		}
	}
	out.FirstToken, out.InterToken, out.PerToken, out.EndToEnd = summarise(first), summarise(gaps), summarise(per),
		summarise(end)
	if out.PromptTokens > 0 {
		out.CachedShare = float64(out.CachedTokens) / float64(out.PromptTokens)
	}
	if s := out.Seconds; s > 0 {
		out.RequestsPerSecond, out.InputPerSecond, out.OutputPerSecond = float64(out.Answered)/s,
			float64(out.PromptTokens)/s, float64(out.OutputTokens)/s
		out.Goodput = float64(out.Good) / s
	}
	return out
}

func (r *Report) fail(o *outcome) {
	r.Errors[o.failure]++
	if r.Samples == nil {
		r.Samples = map[string]string{}
	}
	if r.Samples[o.failure] == "" {
		r.Samples[o.failure] = o.message
	}
}

// summarise computes statistics of the durations.
func summarise(d []time.Duration) Times {
	t := Times{Count: len(d)}
	if len(d) == 0 {
		return t
	}
	slices.Sort(d)
	sum := time.Duration(0)
	for _, v := range d {
		sum += v
	}
	at := func(share float64) float64 { return milliseconds(d[max(int(math.Ceil(share*float64(len(d))))-1, 0)]) }
	t.Mean = milliseconds(sum) / float64(len(d))
	t.P50, t.P90, t.P99, t.Max = at(0.50), at(0.90), at(0.99), milliseconds(d[len(d)-1])
	return t
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PrintSweep writes the reports of several loads as a table, one row per load.
func PrintSweep(w io.Writer, reports []*Report) error {
	if len(reports) == 0 {
		return nil
	}
	first := reports[0]
	fmt.Fprintf(w, "%s at %s; times in milliseconds\n\n", first.Model, first.URL)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "load\tanswered\trequests/s\ttokens/s in\ttokens/s out\tcached\tfirst token p50\tp99\tper token p50\tp99\t"
	if first.Goals != "" {
		head += "goodput\t"
	}
	fmt.Fprintln(t, head)
	for _, r := range reports {
		load := fmt.Sprintf("%d in flight", r.Concurrency)
		if r.Rate > 0 {
			load = fmt.Sprintf("%g/s", r.Rate)
		}
		fmt.Fprintf(t, "%s\t%d of %d\t%.2f\t%.1f\t%.1f\t%.0f %%\t%.1f\t%.1f\t%.2f\t%.2f\t", load, r.Answered, r.Planned,
			r.RequestsPerSecond, r.InputPerSecond, r.OutputPerSecond, 100*r.CachedShare, r.FirstToken.P50,
			r.FirstToken.P99, r.PerToken.P50, r.PerToken.P99)
		if r.Goals != "" {
			fmt.Fprintf(t, "%.2f\t", r.Goodput)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if first.Goals != "" {
		fmt.Fprintf(w, "\ngoodput: requests per second that meet %s\n", first.Goals)
	}
	for i, r := range reports {
		if r.Short > 0 {
			fmt.Fprintf(w, "load %d: %s\n", i+1, r.shortText())
		}
		for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
			fmt.Fprintf(w, "error %s: %d, such as %s\n", kind, r.Errors[kind], r.Samples[kind])
		}
	}
	return nil
}

func (r *Report) shortText() string {
	return fmt.Sprintf("short: %d of %d answers have fewer tokens than requested; the server's context may be too "+
		"small", r.Short, r.Answered)
}

// Print writes the report as plain text.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s at %s: %d of %d requests answered in %.2f s\n", r.Model, r.URL, r.Answered, r.Planned, r.Seconds)
	fmt.Fprintf(w, "throughput: %.2f requests/s, %.1f tokens/s in, %.1f tokens/s out\n", r.RequestsPerSecond,
		r.InputPerSecond, r.OutputPerSecond)
	fmt.Fprintf(w, "tokens: %d in (%d from the prefix cache, %.1f %%), %d out\n", r.PromptTokens, r.CachedTokens,
		100*r.CachedShare, r.OutputTokens)
	if r.Short > 0 {
		fmt.Fprintln(w, r.shortText())
	}
	if r.Answered > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "\nmilliseconds\tmean\tp50\tp90\tp99\tmax\t")
		for _, row := range []struct {
			name string
			t    Times
		}{{"first token", r.FirstToken}, {"between tokens", r.InterToken}, {"per output token", r.PerToken},
			{"whole answer", r.EndToEnd}} {
			if row.t.Count > 0 {
				fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", row.name, row.t.Mean, row.t.P50, row.t.P90,
					row.t.P99, row.t.Max)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if r.Goals != "" {
		fmt.Fprintf(w, "\ngoodput: %.2f requests/s; %d of %d meet %s\n", r.Goodput, r.Good, r.Planned, r.Goals)
	}
	if r.Beside != nil {
		if err := r.Beside.print(w); err != nil {
			return err
		}
	}
	if r.Sent < r.Planned {
		fmt.Fprintf(w, "\nnot sent: %d of %d requests\n", r.Planned-r.Sent, r.Planned)
	}
	switch {
	case len(r.Errors) == 0 && r.Answered == 0:
		return nil
	case len(r.Errors) == 0:
		_, err := fmt.Fprintln(w, "\nerrors: none")
		return err
	}
	fmt.Fprintln(w, "\nerrors:")
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		if _, err := fmt.Fprintf(w, "  %s: %d, such as %s\n", kind, r.Errors[kind], r.Samples[kind]); err != nil {
			return err
		}
	}
	return nil
}
