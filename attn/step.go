package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/plan"
)

// Step is one batch with its plan.
type Step struct {
	Plan   *plan.Plan
	Config *plan.Config // the plan was built from
	Batch  *plan.Batch  // the plan was built for
	// Tables holds, for each request of the batch, the pages of its tokens: position p lies in page Tables[r][p/PageTokens].
	Tables     [][]int32
	PageTokens int
}

// step is what a Step becomes in the device's memory. Arrays over rows are in step order: the rows of a segment are neighbours.
type step struct {
	host   hostArrays
	config *plan.Config

	positions  kernel.Tensor // i32 [T, K]: what was selected, as positions
	request    kernel.Tensor // i32 [T, 1]: the row's request, which is its row of table
	slots      kernel.Tensor // i32 [T, 1]: where the row's own token is stored
	lens       kernel.Tensor // i32 [T, 1]: keys the row sees
	kept       kernel.Tensor // i32 [T, 1]: min(lens, K)
	start      kernel.Tensor // i32 [T, 1]: first row of the request in what its launch gathered
	indexStart kernel.Tensor // i32 [T, 1]: first key of the request in what its launch gathered for the indexer
	angles     kernel.Tensor // f32 [T, rope]
	table      kernel.Tensor // i32 [requests, pages]
	segments   []segment

	mem stepMemory
}

// stepMemory is the memory behind step's tensors.
type stepMemory struct {
	positions, request, slots, lens, kept, start, indexStart, angles, table, place, flat, pages, tables kernel.Scratch
}

// segment is one segment of the plan and where its rows and gathered keys are.
type segment struct {
	plan     *plan.Segment
	first    int // step row
	launches []launch
	chosen   bool // positions hold this step's selection
}

// launch is one launch of a segment: step rows first to last.
type launch struct {
	first, last int
	keys        int           // rows gathered for it
	flat        kernel.Tensor // i32 [keys, 1]: their slots
	pages       kernel.Tensor // i32 [pages, 1]: cache pages converted for it
	table       kernel.Tensor // i32 [requests, pages]: page table over the converted pages
	indexFlat   kernel.Tensor // i32 [keys, 1]: slots of the keys gathered for the indexer
	scoreWidth  int           // keys of the longest row
}

func newStep(mem kernel.Memory) step {
	s := kernel.NewScratch(mem)
	return step{mem: stepMemory{s, s, s, s, s, s, s, s, s, s, s, s, s}}
}

// Begin prepares a step: it lays the rows out in plan order and writes every array that no layer changes. It returns the step's rows, which
// the model needs to embed tokens and to pick outputs.
func (a *Attention) Begin(in Step) (Rows, error) {
	if len(in.Tables) != len(in.Batch.Requests) {
		return Rows{}, plan.ErrLength("tables", len(in.Tables), len(in.Batch.Requests))
	}
	st := &a.step
	st.config = in.Config
	h := &st.host
	if err := h.fill(in, a.params.TopK); err != nil {
		return Rows{}, err
	}
	rows := h.rows()
	var err error
	write := func(s *kernel.Scratch, v []int32, rows, cols int) kernel.Tensor {
		if err != nil {
			return kernel.Tensor{}
		}
		var t kernel.Tensor
		if t, err = s.Take(kernel.I32, rows, cols); err == nil {
			err = kernel.WriteI32(a.dev, t, v)
		}
		return t
	}
	st.request = write(&st.mem.request, h.request, rows, 1)
	st.slots = write(&st.mem.slots, h.slots, rows, 1)
	st.lens = write(&st.mem.lens, h.lens, rows, 1)
	st.kept = write(&st.mem.kept, h.kept, rows, 1)
	st.start = write(&st.mem.start, h.start, rows, 1)
	st.indexStart = write(&st.mem.indexStart, h.indexStart, rows, 1)
	st.table = write(&st.mem.table, h.table, len(in.Tables), h.width)
	flat := write(&st.mem.flat, h.flat, len(h.flat), 1)
	pages := write(&st.mem.pages, h.pages, len(h.pages), 1)
	tables := write(&st.mem.tables, h.tables, len(h.tables)/max(h.width, 1), h.width)
	place := write(&st.mem.place, h.position, rows, 1)
	if err != nil {
		return Rows{}, fmt.Errorf("attn: begin: %w", err)
	}
	st.segments = h.segments(st.segments[:0], in, tensors{flat: flat, pages: pages, tables: tables})
	if st.positions, err = st.mem.positions.Take(kernel.I32, rows, a.params.TopK); err != nil {
		return Rows{}, err
	}
	if st.angles, err = st.mem.angles.Take(kernel.F32, rows, 2*len(a.params.InvFreq)); err != nil {
		return Rows{}, err
	}
	err = a.dev.Angles(kernel.AngleArgs{Out: st.angles, Positions: place, InvFreq: a.freq, Scale: a.params.CosScale})
	return Rows{Request: h.request, Position: h.position, Token: h.token}, err
}

// Rows says which token each row of a step is. The slices are valid until the next Begin.
type Rows struct {
	Request  []int32 // index into the batch
	Position []int32 // in the sequence; 0 for rows of a padded request that lie before its beginning
	Token    []int32 // index among the request's new tokens
}
