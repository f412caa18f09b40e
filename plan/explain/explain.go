// Package explain prints a decision: configuration, plan, reasons and rejected kernels, as a table for people or as
// JSON for scripts. Its input is a resolved configuration and, if there is a batch, a plan; its output is text.
package explain

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sparrow/internal/unit"
	"sparrow/plan"
	"sparrow/plan/public"
)

// Answer is one explained decision. Plan is nil if only the configuration was requested.
type Answer struct {
	// Config is the resolved configuration; for the catalogue sparrow, only the embedded plan.Config is set.
	Config  public.Config `json:"config"`
	Notices []plan.Notice `json:"notices,omitempty"`
	Batch   *plan.Batch   `json:"batch,omitempty"`
	Plan    *plan.Plan    `json:"plan,omitempty"`
	// Arrays lists the inputs of other engines' kernels, one list for each segment; only for plans of the public
	// catalogue.
	Arrays [][]public.Array `json:"arrays,omitempty"`
	// Lengths holds the numbers of keys per row, for each segment with at most mostRows rows.
	Lengths []Lengths `json:"lengths,omitempty"`
	// Layer is the indexer path of one layer in each segment, if a layer was requested.
	Layer *LayerAnswer `json:"layer,omitempty"`
}

// LayerAnswer describes the work of the indexer in one layer.
type LayerAnswer struct {
	Layer    int            `json:"layer"`
	Indexers []plan.Indexer `json:"indexers"` // one for each segment
}

// Question holds the inputs of explain other than the batch.
type Question struct {
	Layer   int  // a layer whose indexer path is requested, or -1
	Carried bool // whether a shared layer receives the indices of an earlier layer
}

// Explain plans a batch and returns all that is printed about it; if b is nil, only about the configuration.
func Explain(cfg public.Config, notices []plan.Notice, b *plan.Batch, q Question) (*Answer, error) {
	a := &Answer{Config: cfg, Notices: notices, Batch: b}
	if b == nil {
		return a, nil
	}
	p, err := build(&cfg, b)
	if err != nil {
		return nil, err
	}
	a.Plan = p
	if cfg.Catalog == plan.CatalogPublic {
		for i := range p.Segments {
			a.Arrays = append(a.Arrays, public.Arrays(&cfg, p, &p.Segments[i]))
		}
	}
	if err := a.fillLengths(); err != nil {
		return nil, err
	}
	if q.Layer >= 0 {
		a.Layer = &LayerAnswer{Layer: q.Layer}
		for i := range p.Segments {
			x, err := cfg.IndexerAt(&p.Segments[i], q.Layer, q.Carried)
			if err != nil {
				return nil, err
			}
			a.Layer.Indexers = append(a.Layer.Indexers, x)
		}
	}
	return a, nil
}

func build(cfg *public.Config, b *plan.Batch) (*plan.Plan, error) {
	if cfg.Catalog == plan.CatalogPublic {
		return public.Build(*cfg, *b)
	}
	return plan.Build(cfg.Config, *b)
}

// Print writes the answer for people.
func (a *Answer) Print(w io.Writer) error {
	c := &a.Config.Config
	fmt.Fprintf(w, "%v on %v: %v cache (%v rows, pages of %d), prefill %v, decode %v, catalogue %v\n", c.Model.Family,
		c.Hardware.Arch, c.KV, c.Layout, c.Page, c.Prefill, c.Decode, c.Catalog)
	if c.Model.Dense() {
		fmt.Fprintf(w, "no indexer: every row attends to every key; %s, other rows attend in latent space\n",
			dense(c, "prompts expand up to %d keys", "no prompt expands"))
	} else if n := c.Model.PoolTokens(); n > 0 {
		fmt.Fprintf(w, "top-k %d pools of %d tokens, of %v selection, dense off, indexer keys as %v\n", c.Model.K, n,
			cmp.Or(a.Config.TopK, "stable"), c.IndexLayout)
	} else {
		fmt.Fprintf(w, "top-k %d of %v selection, %s, indexer keys as %v\n", c.Model.K,
			cmp.Or(a.Config.TopK, "stable"), dense(c, "dense up to %d keys", "never dense"), c.IndexLayout)
	}
	for _, n := range a.Notices {
		fmt.Fprintf(w, "%v: %s\n", n.Level, Notice(n))
	}
	reasons(w, "", c.Reasons)
	rejected(w, "", c.Rejected)
	if a.Plan == nil {
		return nil
	}
	p := a.Plan
	fmt.Fprintf(w, "\nplan %v: %v, %d rows in %d segment(s), %s of transient memory\n", p.Key, p.Mode, p.Rows,
		len(p.Segments), unit.Bytes(p.TransientBytes))
	if !p.Runnable {
		fmt.Fprintln(w, "this plan explains other engines' kernels; it does not run here")
	}
	reasons(w, "", p.Reasons)
	for i := range p.Segments {
		if err := a.segment(w, i, &p.Segments[i]); err != nil {
			return err
		}
	}
	return inputs(w, p)
}

// inputs lists the arrays that are filled for a pass and copied to the device as one block.
func inputs(w io.Writer, p *plan.Plan) error {
	if len(p.Inputs) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\ninputs: %d arrays in one block of %s\n", len(p.Inputs), unit.Bytes(int64(4*p.InputWords)))
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	for _, x := range p.Inputs {
		fmt.Fprintf(t, "  input %v\ti32 [%d, %d]\n", x.Name, x.Rows, x.Cols)
	}
	return t.Flush()
}

// dense returns the text on for the dense form with its maximum number of keys, or off with the reason.
func dense(c *plan.Config, on, off string) string {
	if c.DenseOK {
		return fmt.Sprintf(on, c.T)
	}
	return off + " (" + strings.Join(c.DenseAgainst, "; ") + ")"
}

func (a *Answer) segment(w io.Writer, i int, s *plan.Segment) error {
	whose := ""
	if a.Plan.Shares != nil {
		whose = fmt.Sprintf(" of rank %d", s.Rank)
	}
	fmt.Fprintf(w, "\nsegment %d: %d %v rows%s from row %d\n", i, s.Rows, s.Row, whose, s.FirstRow)
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  form\t%v\n  kernel\t%v, %d heads\n  layout\t%v\n  convert\t%v\n  transform\t%v\n", s.Form,
		s.Kernel, s.KernelHeads, s.Layout, s.Convert, s.Transform)
	fmt.Fprintf(t, "  indexer\t%s\n", indexer(s, s.Indexer))
	if s.SplitKeys != plan.SplitUnset {
		fmt.Fprintf(t, "  keys of a row\t%s\n", s.SplitKeys.Says())
	}
	if a.Layer != nil {
		fmt.Fprintf(t, "  in layer %d\t%s\n", a.Layer.Layer, indexer(s, a.Layer.Indexers[i]))
		if reads := a.Config.Model.LayerSays(a.Layer.Layer); reads != "" {
			fmt.Fprintf(t, "  it reads\t%s\n", reads)
		}
	}
	fmt.Fprintf(t, "  launches\t%s\n  transient\t%s\n", launches(s), unit.Bytes(s.TransientBytes))
	if a.Arrays != nil {
		for _, x := range a.Arrays[i] {
			fmt.Fprintf(t, "  array %v\t%v %v\n", x.Name, x.DType, x.Shape)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	reasons(w, "  ", s.Reasons)
	rejected(w, "  ", s.Rejected)
	return nil
}

func indexer(s *plan.Segment, x plan.Indexer) string {
	out := x.Kind.String()
	if s.Variant == plan.VariantShort {
		return out + ", short variant: no scores"
	}
	if x.NextN > 1 {
		out += fmt.Sprintf(", %d rows per request at once", x.NextN)
		if x.KernelN > x.NextN {
			out += fmt.Sprintf(" as %d", x.KernelN)
		}
	}
	if x.Schedule != plan.ScheduleUnset {
		out += fmt.Sprintf(", schedule kernel %v", x.Schedule)
	}
	if x.RowsPerChunk > 0 {
		out += fmt.Sprintf(", %d rows per chunk, %d chunk(s) of width %d", x.RowsPerChunk, x.Chunks, x.ScoreWidth)
	}
	return out
}

func launches(s *plan.Segment) string {
	if len(s.Launches) == 0 {
		return "none"
	}
	var parts []string
	for i, l := range s.Launches {
		if i == 8 {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, fmt.Sprint(l.Rows))
	}
	out := fmt.Sprintf("%d (%s rows)", len(s.Launches), strings.Join(parts, " + "))
	switch {
	case strings.HasPrefix(s.Limit, "no limit"):
		out += ", " + s.Limit
	case s.RowsPerLaunch > 0 && s.Limit != "":
		out += fmt.Sprintf(", at most %d: %s", s.RowsPerLaunch, s.Limit)
	}
	return out
}

func reasons(w io.Writer, indent string, list []plan.Reason) {
	for _, r := range list {
		fmt.Fprintf(w, "%swhy: %s\n", indent, Reason(r))
	}
}

func rejected(w io.Writer, indent string, list []plan.Rejection) {
	for _, r := range list {
		fmt.Fprintf(w, "%snot %v for %v: %s\n", indent, r.Kernel, r.Phase, r.Reason)
	}
}
