package step

import (
	"math"
	"slices"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// The recorded rows of a work are those between two of its new tokens. A work that records nothing, or no rows, leaves
// the batch as it is.
func TestTheRecordedRowsOfAWork(t *testing.T) {
	kind := plan.Record{Selections: true}
	for _, c := range []struct {
		what             plan.Record
		from, to         int
		wantFrom, wantOf int
		bad              bool
	}{
		{kind, 0, 5, 0, 5, false}, {kind, 2, 3, 2, 1, false}, {kind, 3, 3, 0, 0, false}, {kind, 4, 2, 0, 0, false},
		{plan.Record{}, 1, 4, 0, 0, false}, {kind, -1, 2, 0, 0, true}, {kind, 0, 6, 0, 0, true},
	} {
		w := Work{Tokens: make([]int32, 5), Record: c.what, RecordFrom: c.from, RecordTo: c.to}
		var b plan.Batch
		var q plan.Request
		if err := w.choices(&b, &q); (err != nil) != c.bad {
			t.Errorf("%+v: %v", c, err)
		}
		want := plan.Record{}
		if c.wantOf > 0 {
			want = kind
		}
		if q.RecordFrom != c.wantFrom || q.Records != c.wantOf || b.Record != want {
			t.Errorf("%+v: %d rows from %d on, the batch records %+v", c, q.Records, q.RecordFrom, b.Record)
		}
	}
}

// A layer without an indexer is recorded with the number of tokens that its row sees and with the layer whose selection
// it uses. Only the wanted layers are recorded.
func TestRecordedLayersWithoutAnIndexer(t *testing.T) {
	r := &Recording{What: plan.Record{Selections: true}, Layers: []bool{true, false, true, true},
		Shape: record.Shape{Layers: []record.LayerShape{{As: -1, Window: 7}, {As: -1}, {As: 1, Group: 4},
			{As: -1, Group: 128, Window: 9}}}}
	row := r.Row(Result{}, 0, 41)
	if row.Position != 41 || len(row.Layers) != 3 || row.Experts != nil {
		t.Fatalf("%+v", row)
	}
	for i, want := range []record.Layer{{Layer: 0, Window: 7}, {Layer: 2, Group: 4}, {Layer: 3, Group: 128, Window: 9,
		All: true}} {
		got := row.Layers[i]
		as := -1
		if got.As != nil {
			as = *got.As
		}
		if got.Layer != want.Layer || got.Keys != 42 || got.Group != want.Group || got.Window != want.Window ||
			got.All != want.All || (as == 1) != (want.Layer == 2) || got.Selected != nil {
			t.Errorf("%+v as layer %d, want %+v with 42 keys", got, as, want)
		}
	}
}

// outputs is a pass whose results are given.
type outputs struct {
	model.Pass
	of model.Outputs
}

func (p outputs) Outputs() *model.Outputs { return &p.of }

// Recorded rows of hidden states are found in the block of results, which begins at an address of the device. Values
// of bf16 are pairs in a word.
func TestHiddenStatesInTheBlock(t *testing.T) {
	const start, before = 4096, 6 // bytes before the block, and values before the rows
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16} {
		buf := make(kernel.HostBuffer, 1)
		hidden := kernel.Tensor{Buf: buf, Off: start + before*int64(kind.Size()), DType: kind, Rows: 2, Cols: 5,
			Stride: 5}
		p := outputs{of: model.Outputs{Block: kernel.Tensor{Buf: buf, Off: start, DType: kernel.U8, Rows: 1, Cols: 99},
			Recorded: []model.Recorded{{Hidden: hidden}}}}
		r := Result{pass: &pass{Pass: p}, words: make([]float32, before+10)}
		for i := range before + 10 {
			if kind == kernel.F32 {
				r.words[i] = float32(i)
			}
		}
		if kind == kernel.BF16 {
			r.words = pairs(before + 10)
		}
		for row, want := range [][]float32{{6, 7, 8, 9, 10}, {11, 12, 13, 14, 15}} {
			if got := r.Hidden(0, row); !slices.Equal(got, want) {
				t.Errorf("%v, row %d: %v, want %v", kind, row, got, want)
			}
		}
		if got := r.Hidden(1, 0); got != nil {
			t.Errorf("a layer without records: %v", got)
		}
	}
}

// pairs returns the numbers from 0 to n-1 as bf16, two in each word.
func pairs(n int) []float32 {
	words := make([]float32, (n+1)/2)
	for i := range n {
		bits := math.Float32bits(words[i/2]) | uint32(num.BF16(float32(i)))<<(16*(i%2))
		words[i/2] = math.Float32frombits(bits)
	}
	return words
}
