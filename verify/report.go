package verify

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"sparrow/internal/model"
	"sparrow/plan"
)

// Options define what is verified.
type Options struct {
	Config plan.Config // resolved for the model
	Chunk  int         // prompt tokens per step; 0 means whole prompts
	// Reference is the reference that a device with bf16 activations is compared with; nil uses the tolerances of
	// float32.
	Reference *Reference
	// Replay runs every case again with the choices that the first run made. Its logits must be bitwise equal.
	Replay bool
}

// Report is the outcome of all cases.
type Report struct {
	Model   string   `json:"model"`
	Kernels string   `json:"kernels"`
	Layout  string   `json:"layout"`
	Prefill string   `json:"prefill"`
	Decode  string   `json:"decode"`
	Exact   bool     `json:"exact"`
	Chunk   int      `json:"chunk"`
	Forms   []string `json:"forms"` // forms that ran: row kind, form, kernel and conversion of every kind of segment
	Cases   []Case   `json:"cases"`
	Passed  bool     `json:"passed"`
}

// Run compares every golden case of the checkpoint in dir with the loaded model.
func Run(dir string, m model.Model, o Options) (*Report, error) {
	golden, err := ReadGolden(dir)
	if err != nil {
		return nil, err
	}
	exact := o.Config.KV == plan.F32
	r := &Report{Model: dir, Kernels: m.Device().Name(), Layout: o.Config.Layout.String(),
		Prefill: o.Config.Prefill.String(), Decode: o.Config.Decode.String(), Exact: exact, Chunk: o.Chunk,
		Passed: true}
	seen := map[string]bool{}
	for i := range golden {
		out, err := run(m, o.Config, &golden[i], options{chunk: o.Chunk, rows: o.Replay})
		if err != nil {
			return nil, err
		}
		for _, p := range out.plans {
			for _, s := range p.Segments {
				f := fmt.Sprintf("%v: %v by %v over %v, convert %v, transform %v, indexer %v", s.Row, s.Form, s.Kernel,
					s.Layout, s.Convert, s.Transform, s.Indexer.Kind)
				if !seen[f] {
					seen[f] = true
					r.Forms = append(r.Forms, f)
				}
			}
		}
		ratios := selectionRatios(&o.Config.Model)
		c := compare(&golden[i], out, m.Config().Indexer.TopK, ratios)
		if o.Reference == nil {
			judge(&c, o.Config.Layout, o.Config.IndexLayout)
		} else if err := o.Reference.compare(&c, &golden[i], out, &o, ratios); err != nil {
			return nil, err
		}
		if o.Replay {
			if err := replay(&c, m, &o, &golden[i], out); err != nil {
				return nil, err
			}
		}
		if golden[i].Drafted != nil && o.Config.Model.Block > 0 && !drafterMissing(m) {
			if c.Blocks, err = draftBlocks(dir, m, o.Config, &golden[i], o.Chunk); err != nil {
				return nil, err
			}
			c.judgeBlocks(o.Config.Layout)
		}
		r.Passed = r.Passed && len(c.Problems) == 0
		r.Cases = append(r.Cases, c)
	}
	return r, nil
}

// drafterMissing reports whether the checkpoint of a model lacks its drafting layers.
func drafterMissing(m model.Model) bool {
	d, ok := m.(model.Drafter)
	return !ok || d.DraftHead() != nil
}

// selectionRatios returns, for each layer that selects, the number of tokens that one indexer key covers.
func selectionRatios(m *plan.Model) []int {
	if m.Pooled() { // pools are compared as the tokens that they contain
		return nil
	}
	var out []int
	s := m.Choices()
	for i := range s.Layers {
		if s.Selects(i) {
			out = append(out, max(s.Layers[i].Group, 1))
		}
	}
	return out
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	whole := "whole prompts"
	if r.Chunk > 0 {
		whole = fmt.Sprintf("prompts in chunks of %d", r.Chunk)
	}
	fmt.Fprintf(w, "%s: %s rows, prefill %s, decode %s, kernels %s, %s\n", r.Model, r.Layout, r.Prefill, r.Decode,
		r.Kernels, whole)
	for _, f := range r.Forms {
		fmt.Fprintf(w, "  %s\n", f)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\ttokens\tmax error\tmedian error\tmedian cosine\thidden cosine\tselections equal\tfirst "+
		"overlap\targmax\tgreedy\tverdict\t")
	for _, c := range r.Cases {
		verdict := "ok"
		if len(c.Problems) > 0 {
			verdict = "FAIL"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", c.Name, c.Tokens,
			c.cell(maxErrorColumn, "%.2e", c.MaxError), c.cell(medianErrorColumn, "%.2e", c.MedianError),
			c.cell(cosineColumn, "%.6f", c.MedianCosine), c.cell(hiddenColumn, "%.6f", median(c.Hidden)),
			c.cell(setsColumn, "%d/%d", c.SetsEqual, c.Selections), c.cell(overlapColumn, "%.3f", first(c.Overlap)),
			c.cell(argmaxColumn, "%d/%d", c.ArgmaxEqual, c.ArgmaxOf),
			c.cell(greedyColumn, "%d/%d", c.GreedyEqual, c.GreedyOf), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "values in parentheses are not part of the verdict")
	for i := range r.Cases {
		r.Cases[i].print(w)
	}
	return nil
}

// cell returns a value of the table, in parentheses if the verdict does not depend on it.
func (c *Case) cell(of column, format string, values ...any) string {
	text := fmt.Sprintf(format, values...)
	if c.checked&of == 0 {
		text = "(" + text + ")"
	}
	return text
}

// print writes the rule of a case, its comparison, and its problems.
func (c *Case) print(w io.Writer) {
	fmt.Fprintf(w, "%s: rule %s\n", c.Name, c.Rule)
	if a := c.Reference; a != nil {
		fmt.Fprintf(w, "%s: logits differ by %.2f %% of their scale (with perturbed sums: %.2f %%); median error "+
			"%.3g (the reference's own: %.3g)\n", c.Name, 100*a.Distance, 100*a.Floor, c.MedianError, a.Error)
		fmt.Fprintf(w, "%s: %d of %d selections and %d of %d choices of experts differ, at margins of up to %.2f %% "+
			"and %.2f %% of the scores' scale\n", c.Name, a.Keys.Differ, a.Keys.Rows, a.Experts.Differ, a.Experts.Rows,
			100*a.Keys.Worst, 100*a.Experts.Worst)
		for _, name := range slices.Sorted(maps.Keys(a.Operations)) {
			d := a.Operations[name]
			fmt.Fprintf(w, "  %-24s %5d calls, %6.3f %% unequal, worst %.2e of the scale, rms %.2e, of a row %.2e\n",
				name, d.Calls, 100*d.Unequal, d.Worst, d.Noise, d.Row)
		}
	}
	if b := c.Blocks; b != nil {
		fmt.Fprintf(w, "%s: %d of %d drafts of %d blocks equal; tokens of %d of %d verifies and %d of %d given "+
			"acceptance lengths equal; largest errors: drafts' logits %.2e, without the Markov head %.2e, "+
			"confidences %.2e, logits after given drafts %.2e\n", c.Name, b.DraftsEqual, b.Drafts, b.Blocks,
			b.AcceptedEqual, b.Steps, b.ForcedEqual, b.Forced, b.LogitError, b.BaseError, b.ConfidenceError,
			b.ForcedError)
	}
	if c.Replayed > 0 {
		fmt.Fprintf(w, "%s: replayed the choices of %d rows\n", c.Name, c.Replayed)
	}
	if len(c.Problems) > 0 {
		fmt.Fprintf(w, "%s: %s\n", c.Name, strings.Join(c.Problems, "; "))
	}
}
