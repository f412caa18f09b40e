package eval

import (
	"fmt"
	"slices"
	"strings"

	"sparrow/internal/spec"
	"sparrow/plan"
)

// Plan is one way to run the model in a comparison.
type Plan struct {
	Name    string      // name as the user wrote it
	About   string      // meaning of the plan, for the report
	Policy  plan.Policy // policy for sparrow.Config
	Kernels string      // kernels for sparrow.Config; empty means those of the caller
	Dense   bool        // whether generated tokens run as prompt rows, by NewDenseEngine
	Draft   string      // drafting for sparrow.Config, as spec.Parse reads it; empty means that of the caller
}

// denseKeys is the dense threshold of dense plans: the default maximum number of keys of a dense attention call.
const denseKeys = 131072

// planWords lists the words of a plan's name. Words that end with = take a value.
var planWords = []struct {
	word, means, about string
	set                func(p *Plan, value string) error
}{
	{"sparse", "attention as in the checkpoint", "each token attends to the index_topk keys that the indexer selects",
		func(*Plan, string) error { return nil }},
	{"dense", "every key for every token",
		"every token, prompt or generated, attends to all keys before it; the indexer selects nothing; each " +
			"generated token is a separate request that computes the rows after the last full cache page again, so " +
			"there are more rows",
		func(p *Plan, _ string) error { p.Dense, p.Policy.DenseThreshold = true, denseKeys; return nil }},
	{"dense-prompt", "every key for prompt tokens",
		"prompt tokens attend to all keys before them, generated tokens to the keys that the indexer selects",
		func(p *Plan, _ string) error { p.Policy.DenseThreshold = denseKeys; return nil }},
	{"deterministic", "the same arithmetic for every row", "sparse form for every row, fixed splits",
		func(p *Plan, _ string) error { p.Policy.Deterministic = true; return nil }},
	{"kv=", "cache layout: bf16, fp8, fp8-576, f32", "cache rows in the layout %s",
		func(p *Plan, v string) error { p.Policy.KV = v; return nil }},
	{"prefill=", "kernel of prompt rows", "prompt rows by %s",
		func(p *Plan, v string) error { p.Policy.Prefill = v; return nil }},
	{"decode=", "kernel of generated tokens", "generated tokens by %s",
		func(p *Plan, v string) error { p.Policy.Decode = v; return nil }},
	{"kernels=", "implementation, such as ref", "computed by the implementation %s",
		func(p *Plan, v string) error { p.Kernels = v; return nil }},
	{"draft=", "tokens drafted: auto, off, 1 to 7", "drafts: %s",
		func(p *Plan, v string) error {
			_, err := spec.Parse(v)
			p.Draft = v
			return err
		}},
}

// PlanHelp describes the words of plans, one per line.
func PlanHelp() string {
	var b strings.Builder
	for _, w := range planWords {
		fmt.Fprintf(&b, "  %-14s %s\n", w.word, w.means)
	}
	return b.String()
}

// PlanWord returns the word of a plan for a flag such as --kv bf16. It returns other text unchanged.
func PlanWord(flag string) string {
	for _, w := range planWords {
		if value, ok := strings.CutPrefix(flag, "--"+strings.TrimSuffix(w.word, "=")+" "); ok {
			return w.word + value
		}
	}
	return flag
}

// ParsePlans parses a comparison such as "dense,sparse,kv=fp8+deterministic": plans separated by commas, each of them
// words separated by plus signs. base holds the settings that a plan does not mention.
func ParsePlans(text string, base plan.Policy) ([]Plan, error) {
	var plans []Plan
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if slices.ContainsFunc(plans, func(p Plan) bool { return p.Name == name }) {
			return nil, fmt.Errorf("%w: %q occurs twice", ErrPlan, name)
		}
		p := Plan{Name: name, Policy: base}
		var about []string
		for word := range strings.SplitSeq(name, "+") {
			means, err := p.apply(word)
			if err != nil {
				return nil, err
			}
			about = append(about, means)
		}
		p.About = strings.Join(about, "; ")
		plans = append(plans, p)
	}
	return plans, nil
}

// apply applies one word to the plan and returns the word's meaning.
func (p *Plan) apply(word string) (string, error) {
	key, value, valued := strings.Cut(word, "=")
	if valued {
		key += "="
	}
	for _, w := range planWords {
		if w.word != key {
			continue
		}
		if !valued {
			return w.about, w.set(p, "")
		}
		if value == "" {
			return "", fmt.Errorf("%w: %q has no value: %s", ErrPlan, word, w.means)
		}
		return fmt.Sprintf(w.about, value), w.set(p, value)
	}
	return "", fmt.Errorf("%w: %q in %q is unknown; the parts of plans are\n%s", ErrPlan, word, p.Name, PlanHelp())
}
