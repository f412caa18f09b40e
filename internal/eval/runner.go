package eval

import (
	"context"
	"fmt"
	"strings"

	"sparrow/chat"
)

// Runner answers items. Run calls it from several goroutines.
type Runner interface {
	// Answer generates greedily, at most most tokens, or computes the log probabilities of the choices of an item.
	Answer(ctx context.Context, it *Item, most int) (Reply, error)
	// About describes the runner.
	About() About
}

// About describes a runner in a report.
type About struct {
	Model   string `json:"model"`
	Kernels string `json:"kernels,omitempty"` // kernels of an engine
	Layout  string `json:"layout,omitempty"`  // layout of an engine's cache
	URL     string `json:"url,omitempty"`     // URL of a server
	// Settings lists the settings of an engine's device that are not defaults, such as its threads.
	Settings []string `json:"settings,omitempty"`
}

// Reply is a model's output.
type Reply struct {
	// Text is the model's raw output if Raw is set, and the visible content otherwise.
	Text      string
	Raw       bool
	Reasoning string      // reasoning before the text; only if not Raw
	Calls     []chat.Call // tools called; only if not Raw
	// Ended means that the model ended its answer; false means that the answer was cut off.
	Ended bool
	// Logprobs holds the logprobs of an item's choices; Text is then the most probable one.
	Logprobs []float64

	PromptTokens     int
	CachedTokens     int // cached tokens of the prompt
	CompletionTokens int
}

// chosen returns the reply to an item with choices.
func chosen(it *Item, logprobs []float64) Reply {
	r := Reply{Raw: true, Ended: true, Logprobs: logprobs}
	r.Text = it.Choices[largest(logprobs)]
	return r
}

// String returns the whole output as one text. Two replies are equal if their strings are equal.
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
