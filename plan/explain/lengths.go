package explain

import (
	"sparrow/plan"
	"sparrow/plan/public"
)

// Lengths holds the numbers of keys of each row of one segment. The first three arrays are set for plans of the
// catalogue sparrow, the others for plans of the public catalogue, by their names in other engines.
type Lengths struct {
	Segment int `json:"segment"`

	Positions []int32 `json:"positions,omitempty"` // [rows] position in the sequence
	Lengths   []int32 `json:"lengths,omitempty"`   // [rows] keys visible to the row
	Kept      []int32 `json:"kept,omitempty"`      // [rows] keys attended to, at most index_topk; sparse-mla only

	Expanded []int32 `json:"seqlens_expanded,omitempty"`
	DSAKept  []int32 `json:"dsa_cache_seqlens,omitempty"`
	KStart   []int32 `json:"k_start,omitempty"`
	KEnd     []int32 `json:"k_end,omitempty"`
	Offset   []int32 `json:"topk_offset,omitempty"`
	Ctx2D    []int32 `json:"ctx_lens_2d,omitempty"`
}

// mostRows is the maximum number of rows of a segment whose lengths are printed.
const mostRows = 64

// fillLengths adds the lengths of every segment with at most mostRows rows.
func (a *Answer) fillLengths() error {
	for i := range a.Plan.Segments {
		s := &a.Plan.Segments[i]
		if s.KernelRows == 0 || s.KernelRows > mostRows || s.KernelRows < s.Rows {
			continue // segments divided by context parallelism are skipped too: the plan does not state the rank
		}
		l := Lengths{Segment: i}
		if a.Arrays == nil {
			l.rows(&a.Config.Config, a.Batch, a.Plan, s)
		} else if err := l.public(public.NewFiller(&a.Config, a.Batch, s), a.Arrays[i]); err != nil {
			return err
		}
		a.Lengths = append(a.Lengths, l)
	}
	return nil
}

// rows fills Positions, Lengths and Kept for each row of a segment of the sparrow catalogue, if the plan has these
// arrays. Rows of a padded request before the start of the sequence have position 0.
func (l *Lengths) rows(cfg *plan.Config, b *plan.Batch, p *plan.Plan, s *plan.Segment) {
	lengths := p.Input(plan.Lengths).Rows > 0
	for _, sp := range s.Spans {
		first := b.FirstPosition(cfg, sp.Request)
		for at := first + sp.From; at < first+sp.To; at++ {
			n := max(0, at+1)
			l.Positions = append(l.Positions, int32(max(0, at)))
			if lengths {
				l.Lengths = append(l.Lengths, int32(n))
			}
			if s.Form == plan.FormSparseMLA {
				l.Kept = append(l.Kept, int32(min(n, cfg.Model.K)))
			}
		}
	}
}

// public fills those arrays of a segment whose values depend only on lengths.
func (l *Lengths) public(f public.Filler, arrays []public.Array) error {
	for _, a := range arrays {
		var to *[]int32
		var fill func([]int32) error
		switch a.Name {
		case public.SeqlensExpanded:
			to, fill = &l.Expanded, f.SeqlensExpanded
		case public.DSACacheSeqlens:
			to, fill = &l.DSAKept, f.DSACacheSeqlens
		case public.KStart:
			to, fill = &l.KStart, f.KStart
		case public.KEnd:
			to, fill = &l.KEnd, f.KEnd
		case public.TopKOffset:
			to, fill = &l.Offset, f.TopKOffset
		case public.CtxLens2D:
			to, fill = &l.Ctx2D, f.CtxLens2D
		default:
			continue
		}
		*to = make([]int32, a.Len())
		if err := fill(*to); err != nil {
			return err
		}
	}
	return nil
}
