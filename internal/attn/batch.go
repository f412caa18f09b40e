package attn

import (
	"fmt"
	"sync"

	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// Batch holds a batch, its plan, and the page tables of its requests.
type Batch struct {
	Plan   *plan.Plan
	Config *plan.Config // configuration that the plan was built from
	Batch  *plan.Batch  // batch that the plan was built for
	// Tables holds, for each request of the batch, the pages of its tokens: position p is in page
	// Tables[r][p/PageTokens].
	Tables     [][]int32
	PageTokens int
	// Draws holds, for each request of the batch, the sampling parameters of each of its rows of logits; nil means
	// greedy sampling. It is used if Plan.Draws is set.
	Draws [][]sample.Draw
}

// Row is one row of a pass.
type Row struct {
	Index    int // number of the row in plan order
	Request  int // index of the request in the batch
	Token    int // index of the row's token among the request's new tokens
	Position int // position in the sequence; negative for padding of a request that is shorter than its rows
}

// Rows calls visit for every row of the pass, in plan order. It checks that the plan covers its rows and that every
// request has a page for each of its tokens, and stops at the first error.
func (b *Batch) Rows(visit func(Row) error) error {
	if len(b.Tables) != len(b.Batch.Requests) {
		return plan.ErrLength(plan.PageTable.String(), len(b.Tables), len(b.Batch.Requests))
	}
	at := 0
	for i := range b.Plan.Segments {
		s := &b.Plan.Segments[i]
		if at != s.FirstRow {
			return &plan.Error{Code: plan.E26,
				Asked:     fmt.Sprintf("segment %d at row %d after %d rows", i, s.FirstRow, at),
				Supported: "segments whose rows are contiguous"}
		}
		for _, span := range s.Spans {
			first := b.Batch.FirstPosition(b.Config, span.Request)
			if need, have := ceilDiv(first+span.To, b.PageTokens), len(b.Tables[span.Request]); need > have {
				return &plan.Error{Code: plan.E22,
					Asked:     fmt.Sprintf("request %d, which needs %d pages, with %d", span.Request, need, have),
					Supported: fmt.Sprintf("a page for every %d tokens", b.PageTokens)}
			}
			for t := span.From; t < span.To; t++ {
				if err := visit(Row{Index: at, Request: span.Request, Token: t, Position: first + t}); err != nil {
					return err
				}
				at++
			}
		}
		if at != s.FirstRow+s.Rows {
			return &plan.Error{Code: plan.E26,
				Asked:     fmt.Sprintf("a segment of %d rows whose spans hold %d", s.Rows, at-s.FirstRow),
				Supported: "spans that cover the segment's rows"}
		}
	}
	return nil
}

// CheckPages returns an error if a page table has a page outside a cache of the given number of pages: kernels would
// read outside the cache.
func (b *Batch) CheckPages(pages int) error {
	for r := range min(len(b.Tables), len(b.Batch.Requests)) {
		end := b.Batch.FirstPosition(b.Config, r) + b.Batch.Rows(b.Config, r)
		for _, p := range b.Tables[r][:min(len(b.Tables[r]), ceilDiv(max(end, 0), b.PageTokens))] {
			if uint32(p) >= uint32(pages) { // also true for negative pages
				return plan.ErrTableRange(r, p, pages)
			}
		}
	}
	return nil
}

// FillTable copies page tables to an array of the plan's table width; columns after the end of a table are set to the
// value rest.
func (b *Batch) FillTable(to []int32, tables [][]int32, rest int32) {
	width := b.Plan.TablePages
	for r, t := range tables[:min(len(tables), b.Plan.Requests)] { // Rows has checked the number of tables
		row := to[r*width : (r+1)*width]
		if len(t) > width {
			t = t[:width] // pages after the last token of the batch are not read
		}
		behind := row[copy(row, t):]
		if rest == 0 {
			clear(behind) // often half of the table; clear is much faster than the loop
			continue
		}
		for i := range behind {
			behind[i] = rest
		}
	}
}

// PieceRows is the number of rows for which one goroutine prepares the inputs of a pass.
const PieceRows = 512

// InPieces calls visit for pieces of the rows [first, last), in parallel. The device waits for the inputs of a prompt,
// which have hundreds of numbers for each row.
func InPieces(first, last int, visit func(first, last int)) {
	var wait sync.WaitGroup
	for r := first; r < last; r += PieceRows {
		wait.Go(func() { visit(r, min(r+PieceRows, last)) })
	}
	wait.Wait()
}

// LaunchRows returns the range of rows of a launch, without padding rows.
func LaunchRows(s *plan.Segment, l *plan.Launch) (first, last int) {
	end := s.FirstRow + s.Rows
	return min(s.FirstRow+l.FirstRow, end), min(s.FirstRow+l.FirstRow+l.Rows, end)
}

// Join makes the attention output of a layer, x [T, n], complete on all ranks. If ranks divide attention by heads, each
// rank has a part of the sum for all rows, and the parts are added. If ranks divide attention by requests, each rank
// has the output of its rows, given by bounds, and the rows are copied to the other ranks.
func Join(list *kernel.Builder, x kernel.Tensor, bounds []int) {
	if bounds == nil {
		list.Add(kernel.AllReduceArgs{X: x})
		return
	}
	list.Add(kernel.ShareArgs{X: x, Bounds: bounds})
}

// OwnRows returns n rows of a tensor, starting at row first, or the tensor itself if it has no rows.
func OwnRows(t kernel.Tensor, first, n int) kernel.Tensor {
	if t.Rows == 0 {
		return t
	}
	return t.Slice(first, first+n)
}

// RowOf returns the row in plan order of a new token of a request. The rows of a request are in at most three ranges,
// one for each kind of prompt row. Each range is in ascending order of tokens.
func RowOf(p *plan.Plan, request, token int) (int32, error) {
	for i := range p.Segments {
		s := &p.Segments[i]
		for _, span := range s.Spans {
			if span.Request == request && span.From <= token && token < span.To {
				return int32(s.FirstRow + span.FirstRow + token - span.From), nil
			}
		}
	}
	return 0, fmt.Errorf("attn: new token %d of request %d is not a row of the plan", token, request)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
