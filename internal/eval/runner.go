package eval

import (
	"context"
	"fmt"
	"strings"

	"sparrow/chat"
)

// Runner answers items. It must be safe for concurrent use.
type Runner interface {
	// Answer generates at most most tokens greedily. For an item with choices it computes their log probabilities
	// instead.
	Answer(ctx context.Context, it *Item, most int) (Reply, error)
	// About returns a description for reports.
	About() About
}

// About describes a runner in a report.
type About struct {
	Model   string `json:"model"`
	Kernels string `json:"kernels,omitempty"` // kernels of an engine in this process
	Layout  string `json:"layout,omitempty"`  // cache layout of an engine in this process
	URL     string `json:"url,omitempty"`     // URL of a server
	// Settings lists the settings of an engine's device that differ from the defaults, such as threads.
	Settings []string `json:"settings,omitempty"`
}

// Reply is a model's output.
type Reply struct {
	// Text is the raw output of the model if Raw is true, otherwise the content without reasoning and calls.
	Text      string
	Raw       bool
	Reasoning string      // reasoning before the content; empty if Raw
	Calls     []chat.Call // tool calls; empty if Raw
	// Ended is true if the model ended its answer, and false if the token limit was reached.
	Ended bool
	// Logprobs holds the log probabilities of an item's choices; Text is then the most probable choice.
	Logprobs []float64

	PromptTokens     int
	CachedTokens     int // prompt tokens found in the cache
	CompletionTokens int
}

// chosen returns the reply to an item with choices.
func chosen(it *Item, logprobs []float64) Reply {
	r := Reply{Raw: true, Ended: true, Logprobs: logprobs}
	r.Text = it.Choices[largest(logprobs)]
	return r
}

// String returns the whole reply as one text; replies are equal if their texts are equal.
func (r *Reply) String() string {
	if r.Raw {
		return r.Text
	}
	var b strings.Builder
	if r.Reasoning != "" {
		b.WriteString(r.Reasoning + thinkClose)
	}
	b.WriteString(r.Text)
	for _, c := range r.Calls {
		fmt.Fprintf(&b, "[%s %s]", c.Name, c.Arguments)
	}
	return b.String()
}
