package host

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/sample"
)

// The reference and the CPU device share the operations of this file, so comparing the two devices would not find an
// error in them. Therefore the expected values are literals here. Every index that an operation reads is checked up to
// its bounds.

// ints returns an i32 tensor with the given values.
func ints(t *testing.T, rows, cols int, v ...int32) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(Memory{}, kernel.I32, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	copy(I32(x), v)
	return x
}

// floats returns an f32 tensor with the given values.
func floats(t *testing.T, rows, cols int, v ...float32) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(Memory{}, kernel.F32, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	copy(F32(x), v)
	return x
}

// wantArgument checks that an operation refuses its arguments, or not if want is empty.
func wantArgument(t *testing.T, name string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") ||
		err != nil && (!errors.Is(err, kernel.ErrArgument) || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v, want %q", name, err, want)
	}
}

// Views of a tensor have all of its elements, including a single one and none.
func TestViewsHaveEveryElement(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3} {
		x := kernel.Tensor{Buf: kernel.HostBuffer(lines(4 * n)), DType: kernel.F32, Rows: min(n, 1), Cols: n, Stride: n}
		whole, half := x, x
		whole.DType = kernel.I32
		half.DType = kernel.BF16
		if a, b, c := len(F32(x)), len(I32(whole)), len(U16(half)); a != n || b != n || c != n {
			t.Errorf("%d elements: views of %d, %d and %d", n, a, b, c)
		}
	}
}

// The output of a place is the target's token after the accepted drafts or, for a place of words, the word for the
// number of accepted drafts. A draft is accepted if its token and those of the drafts before it are in their ranges.
func TestAcceptedDrafts(t *testing.T) {
	// Sequence 0 begins at token 0 with two drafts, sequence 1 at token 3 with one draft and a range that accepts none.
	drafts := []int32{0, 5, 5, 7, 9, 3, 2, 2, 1, 0}
	for _, c := range []struct {
		name   string
		tokens [5]int32
		want   []int32 // outputs of places 0 to 3
	}{
		{"all accepted", [5]int32{5, 9, 40, 2, 60}, []int32{40, 102, 60, 201}},
		{"the lowest of a range", [5]int32{5, 7, 40, 2, 60}, []int32{40, 102, 60, 201}},
		{"below a range", [5]int32{5, 6, 40, 2, 60}, []int32{6, 101, 60, 201}},
		{"above a range", [5]int32{5, 10, 40, 3, 60}, []int32{10, 101, 3, 200}},
		{"the first is wrong", [5]int32{4, 9, 40, 1, 60}, []int32{4, 100, 1, 200}},
	} {
		a := kernel.AcceptArgs{Out: ints(t, 1, 4), Tokens: ints(t, 5, 1, c.tokens[:]...),
			Drafts: ints(t, 2, 5, drafts...), Words: ints(t, 4, 5, -1, 0, 0, 0, 0, 1, 0, 100, 101, 102,
				-3, 1, 0, 0, 0, 3, 1, 200, 201, 202)}
		if err := Accept(a); err != nil || !slices.Equal(I32(a.Out), c.want) {
			t.Errorf("%s: %v, want %v, error %v", c.name, I32(a.Out), c.want, err)
		}
	}
	for _, c := range []struct {
		name string
		word []int32
		seq  []int32
		want string
	}{
		{"as it is", []int32{0, 0, 1, 2, 3}, drafts, ""},
		{"the last place", []int32{1, 1, 1, 2, 3}, drafts, ""},
		{"a place too many", []int32{2, 0, 1, 2, 3}, drafts, "word 2 (of 2)"},
		{"the token of a place too many", []int32{-3, 0, 1, 2, 3}, drafts, "word 2 (of 2)"},
		{"a sequence too many", []int32{0, 2, 1, 2, 3}, drafts, "sequence 2 (of 2)"},
		{"a negative sequence", []int32{0, -1, 1, 2, 3}, drafts, "sequence -1 (of 2)"},
		{"a token too many", []int32{0, 0, 1, 2, 3}, []int32{5, 5, 5, 7, 9, 3, 2, 2, 1, 0}, "token 5 is outside the 5"},
		{"a draft at the last token", []int32{0, 0, 1, 2, 3}, []int32{4, 0, 0, 7, 9, 3, 2, 2, 1, 0},
			"token 5 is outside the 5"},
		{"a negative token", []int32{0, 0, 1, 2, 3}, []int32{-1, 5, 5, 7, 9, 3, 2, 2, 1, 0}, "token -1 is outside"},
		{"the next of the last token", []int32{-1, 0, 1, 2, 3}, []int32{4, 0, 0, 1, 0, 3, 2, 2, 1, 0},
			"token 5 is outside the 5"},
	} {
		a := kernel.AcceptArgs{Out: ints(t, 1, 2), Tokens: ints(t, 5, 1), Drafts: ints(t, 2, 5, c.seq...),
			Words: ints(t, 1, 5, c.word...)}
		wantArgument(t, c.name, Accept(a), c.want)
	}
}

// The chosen experts of rows with keys are counted, those of padding rows are not.
func TestTallies(t *testing.T) {
	a := kernel.TallyArgs{Counts: ints(t, 1, 4, 10, 20, 30, 40), IDs: ints(t, 4, 2, 0, 3, 3, 1, 2, 2, 3, 0),
		Seen: ints(t, 4, 1, 1, 5, 0, -1)}
	if err := Tally(a); err != nil || !slices.Equal(I32(a.Counts), []int32{11, 21, 30, 42}) {
		t.Errorf("%v, error %v", I32(a.Counts), err)
	}
	for _, id := range []int32{4, -1} {
		I32(a.IDs)[2] = id
		wantArgument(t, "an expert that does not exist", Tally(a), "is outside the 4 experts")
	}
}

// Rows are taken by number, and other rows are refused.
func TestTakenRows(t *testing.T) {
	x := floats(t, 3, 2, 1, 2, 3, 4, 5, 6)
	for _, c := range []struct {
		rows []int32
		want []float32
		err  string
	}{{[]int32{2, 0}, []float32{5, 6, 1, 2}, ""}, {[]int32{1, 1}, []float32{3, 4, 3, 4}, ""},
		{[]int32{0, 3}, nil, "row 3 is outside the 3 rows"}, {[]int32{-1, 0}, nil, "row -1 is outside the 3 rows"}} {
		a := kernel.TakeArgs{Out: floats(t, 2, 2), X: x, Rows: ints(t, 2, 1, c.rows...)}
		err := Take(a)
		wantArgument(t, "take", err, c.err)
		if err == nil && !slices.Equal(F32(a.Out), c.want) {
			t.Errorf("rows %v are %v, want %v", c.rows, F32(a.Out), c.want)
		}
	}
	half, err := kernel.New(Memory{}, kernel.BF16, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	out, err := kernel.New(Memory{}, kernel.BF16, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"take": words("take", out, half), "two types": words("put", x, half),
		"another output": words("put", half, x)} {
		if !errors.Is(err, kernel.ErrUnsupported) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if words("put", x, x) != nil || words("put", ints(t, 1, 1), ints(t, 1, 1)) != nil {
		t.Error("rows of f32 or i32 are refused")
	}
}

// The combined list has the keys of the window and then the compressed entries, each increased by the base of its
// stream; -1 stays -1.
func TestCombinedKeys(t *testing.T) {
	out := ints(t, 3, 128)
	a := kernel.CombineArgs{Out: out, Lens: ints(t, 3, 1), Window: ints(t, 3, 3, 4, -1, 6, 1, 2, 3, 7, 8, 9),
		WindowLens: ints(t, 3, 1, 3, 2, -1), WindowBase: ints(t, 3, 1, 100, 200, 300),
		Extra: ints(t, 3, 2, 0, 5, 6, 7, 8, 9), ExtraLens: ints(t, 3, 1, 2, 1, 9),
		ExtraBase: ints(t, 3, 1, 1000, 2000, 0)}
	if err := Combine(a); err != nil {
		t.Fatal(err)
	}
	for r, want := range [][]int32{{104, -1, 106, 1000, 1005}, {201, 202, 2006}, {8, 9}} {
		row := RowI32(out, r)
		if n := int(RowI32(a.Lens, r)[0]); n != len(want) || !slices.Equal(row[:n], want) ||
			slices.ContainsFunc(row[n:], func(v int32) bool { return v != -1 }) {
			t.Errorf("row %d has %d keys %v, want %v", r, n, row[:8], want)
		}
	}
	a.Extra = kernel.Tensor{}
	if err := Combine(a); err != nil || RowI32(a.Lens, 1)[0] != 2 || RowI32(out, 1)[2] != -1 {
		t.Errorf("without entries: %v, error %v", RowI32(out, 1)[:4], err)
	}
}

// Selected keys have their scores. If a row attends to all keys, no scores were computed.
func TestScoresOfSelectedKeys(t *testing.T) {
	a := kernel.SelectArgs{Out: ints(t, 3, 3, 4, 0, 2, 0, 1, 2, 1, 3, -1), Lens: ints(t, 3, 1, 5, 3, 4),
		Scores: floats(t, 3, 5, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 30, 31, 32, 33, 34),
		Values: floats(t, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9)}
	SelectedScores(a)
	if want := []float32{14, 10, 12, 0, 0, 0, 31, 33, 0}; !slices.Equal(F32(a.Values), want) {
		t.Errorf("scores %v, want %v", F32(a.Values), want)
	}
	a.Values = kernel.Tensor{}
	SelectedScores(a)
}

// The tokens of selected pools, and those after the last complete pool, are the keys of a row, through its page table.
func TestSpreadPools(t *testing.T) {
	args := func(pools []int32, seen, row int32) kernel.SpreadArgs {
		return kernel.SpreadArgs{Out: ints(t, 1, 7), Lens: ints(t, 1, 1), Pools: ints(t, 1, 3, pools...),
			Seen: ints(t, 1, 1, seen), Table: ints(t, 2, 2, 5, 1, 3, 0), TableRow: ints(t, 1, 1, row), PageTokens: 4,
			Pool: 2}
	}
	for _, c := range []struct {
		pools     []int32
		seen, row int32
		want      []int32
	}{
		{[]int32{0, 2, -1}, 7, 0, []int32{20, 21, 4, 5, 6}},
		{[]int32{0, 1, 3}, 8, 1, []int32{12, 13, 14, 15, 2, 3}},
		{[]int32{-1, 1, 1}, 1, 1, []int32{12}},
		{[]int32{-1, -1, -1}, 0, 0, nil}, {[]int32{-1, -1, -1}, -3, 0, nil},
	} {
		a := args(c.pools, c.seen, c.row)
		err := Spread(a)
		if n := int(I32(a.Lens)[0]); err != nil || n != len(c.want) || !slices.Equal(I32(a.Out)[:n], c.want) ||
			slices.ContainsFunc(I32(a.Out)[n:], func(v int32) bool { return v != -1 }) {
			t.Errorf("pools %v of %d tokens: %d keys %v, want %v, error %v", c.pools, c.seen, n, I32(a.Out), c.want,
				err)
		}
	}
	a := args([]int32{0, 2, -1}, 7, 0)
	a.Table, a.TableRow, a.PageTokens, a.Offset = kernel.Tensor{}, kernel.Tensor{}, 0, ints(t, 1, 1, 100)
	if err := Spread(a); err != nil || !slices.Equal(I32(a.Out), []int32{100, 101, 104, 105, 106, -1, -1}) {
		t.Errorf("by offset: keys %v, error %v", I32(a.Out), err)
	}
	for _, c := range []struct {
		name      string
		pools     []int32
		seen, row int32
		want      string
	}{
		{"the last pool", []int32{3, -1, -1}, 8, 0, ""},
		{"a pool that is not full", []int32{3, -1, -1}, 7, 0, "do not fill pool 3"},
		{"a row too many", []int32{-1, -1, -1}, 1, 2, "row 2 of the page table"},
		{"a negative row", []int32{-1, -1, -1}, 1, -1, "row -1 of the page table"},
		{"too many tokens", []int32{-1, -1, -1}, 9, 0, "attends to 9 tokens"},
	} {
		wantArgument(t, c.name, Spread(args(c.pools, c.seen, c.row)), c.want)
	}
}

// The rows, the slot and the held-back rows of a sequence of linear attention are checked up to their bounds.
func TestSequencesAreChecked(t *testing.T) {
	for _, c := range []struct {
		name string
		span []int32
		rows []int32
		want string
	}{
		{"as it is", []int32{0, 3, 1, 1, 2, 0}, []int32{2, 0, 1}, ""},
		{"padding", []int32{0, 0, -1, 0, 0, 0}, []int32{0, 1, 2}, ""},
		{"held back", []int32{1, 2, 0, 0, 0, 1}, []int32{0, 1, 2}, ""},
		{"too many held back", []int32{0, 3, 0, 0, 0, 1}, []int32{0, 1, 2}, "at most 2 can be held back"},
		{"too many were held back", []int32{0, 1, 0, 0, 3, 0}, []int32{0, 1, 2}, "sequence 0 held back 3 rows"},
		{"a negative number was held back", []int32{0, 1, 0, 0, -1, 0}, []int32{0, 1, 2},
			"sequence 0 held back -1 rows"},
		{"a negative start", []int32{-1, 1, 0, 0, 0, 0}, []int32{0, 1, 2}, "has rows -1 to 0"},
		{"a negative number", []int32{1, -1, 0, 0, 0, 0}, []int32{0, 1, 2}, "has rows 1 to 0"},
		{"beyond the end", []int32{1, 3, 0, 0, 0, 0}, []int32{0, 1, 2}, "has rows 1 to 4 (of 3)"},
		{"a slot too many", []int32{0, 1, 2, 0, 0, 0}, []int32{0, 1, 2}, "slot 2 (of 2)"},
		{"a row too many", []int32{0, 2, 0, 0, 0, 0}, []int32{0, 3, 1}, "has row 3, outside the 3 rows"},
		{"a negative row", []int32{0, 2, 0, 0, 0, 0}, []int32{0, -1, 1}, "has row -1"},
		{"a row of no sequence", []int32{0, 2, 0, 0, 0, 0}, []int32{0, 1, 9}, ""},
	} {
		s := &kernel.Sequences{Rows: ints(t, 3, 1, c.rows...), Spans: ints(t, 1, 6, c.span...),
			Snapshots: ints(t, 3, 1, -1, 3, 0)}
		wantArgument(t, c.name, CheckSequences("test", s, 3, 2, 4, floats(t, 4, 1)), c.want)
	}
	s := &kernel.Sequences{Rows: ints(t, 3, 1, 0, 1, 2), Spans: ints(t, 1, 6, 0, 2, 0, 0, 0, 0),
		Snapshots: ints(t, 3, 1, -1, 4, 9)}
	wantArgument(t, "a snapshot too many", CheckSequences("test", s, 3, 2, 4, floats(t, 4, 1)), "outside the 4 slots")
	I32(s.Spans)[0] = 2
	I32(s.Spans)[1] = 0
	wantArgument(t, "no rows", CheckSequences("test", s, 3, 2, 4, floats(t, 4, 1)), "")
	got := SpanAt(&kernel.Sequences{Rows: ints(t, 4, 1, 7, 8, 9, 6),
		Spans: ints(t, 2, 6, 0, 1, 0, 0, 0, 0, 1, 2, 5, 1, 3, 1)}, 1)
	if !slices.Equal(got.Rows, []int32{8, 9}) || got.Slot != 5 || !got.Begin || got.Held != 3 || !got.Hold {
		t.Errorf("span %+v", got)
	}
	if row := HeldRow(floats(t, 6, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 2, 1, 2); row[0] != 10 || row[1] != 11 {
		t.Errorf("held row 2 of slot 1 is %v", row)
	}
}

// Matrices with groups are widened to value minus zero, times the scale of the group, for every type of values and of
// scales.
func TestWidenedRows(t *testing.T) {
	raw := func(d kernel.DType, rows, cols int, b ...byte) kernel.Tensor {
		x, err := kernel.New(Memory{}, d, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		copy(Bytes(x), b)
		return x
	}
	bf16, f16 := num.BF16(0.5), num.F16(0.25)
	scales := []struct {
		x    kernel.Tensor // [1, 2]: two groups
		want [2]float32
	}{
		{floats(t, 1, 2, 3, 0.5), [2]float32{3, 0.5}},
		{raw(kernel.BF16, 1, 2, byte(bf16), byte(bf16>>8), 0, 0x40), [2]float32{0.5, 2}},
		{raw(kernel.F16, 1, 2, byte(f16), byte(f16>>8), 0, 0x40), [2]float32{0.25, 2}},
		{raw(kernel.E4M3, 1, 2, num.E4M3(1.5), num.E4M3(4)), [2]float32{1.5, 4}},
		{raw(kernel.E8M0, 1, 2, 128, 126), [2]float32{2, 0.5}},
	}
	for _, d := range []struct {
		x    kernel.Tensor // a row of eight values in groups of four
		zero []byte
		want [8]float32 // before scales
	}{
		{raw(kernel.E4M3, 1, 8, num.E4M3(1), num.E4M3(-2), 0, num.E4M3(3), num.E4M3(4), 0, num.E4M3(-6),
			num.E4M3(7)), nil, [8]float32{1, -2, 0, 3, 4, 0, -6, 7}},
		{raw(kernel.E2M1x2, 1, 4, 0x21, 0x0a, 0x43, 0xf5), nil, [8]float32{0.5, 1, -1, 0, 1.5, 2, 3, -6}},
		{raw(kernel.U4x2, 1, 4, 0x21, 0x0f, 0x98, 0x5a), []byte{2, 9}, [8]float32{-1, 0, 13, -2, -1, 0, 1, -4}},
		{raw(kernel.U8, 1, 8, 0, 1, 128, 255, 7, 8, 9, 10), []byte{100, 8},
			[8]float32{-100, -99, 28, 155, -1, 0, 1, 2}},
		{raw(kernel.I8, 1, 8, 0, 1, 0x80, 0xff, 7, 8, 9, 10), nil, [8]float32{0, 1, -128, -1, 7, 8, 9, 10}},
	} {
		for _, s := range scales {
			for _, factor := range []float32{0, 4} {
				m := &Matrix{Weight: kernel.Weight{Data: d.x, Scale: s.x, BlockRows: 1, BlockCols: 4, Factor: factor}}
				if d.zero != nil {
					m.Zero = raw(kernel.U8, 1, 2, d.zero...)
				}
				got := make([]float32, 8)
				m.Widen(got, 0)
				for i, v := range d.want {
					want := v * s.want[i/4]
					if factor != 0 {
						want *= factor
					}
					if got[i] != want {
						t.Errorf("%v with scales of %v, factor %v: element %d is %v, want %v", d.x.DType, s.x.DType,
							factor, i, got[i], want)
						break
					}
				}
			}
		}
	}
}

// The value of a block is the largest score of its keys; the block of the last key has infinity. Rows with few keys are
// not written.
func TestLargestScoresOfBlocks(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		keys int32
		want []float32
	}{{5, []float32{3, 8, inf}}, {4, []float32{3, inf, 9}}, {3, []float32{3, inf, 9}}, {2, []float32{9, 9, 9}},
		{0, []float32{9, 9, 9}}} {
		a := &kernel.BlockMaxArgs{Scores: floats(t, 1, 6, 3, -1, 7, 8, 2, 50), Lens: ints(t, 1, 1, c.keys),
			Out: floats(t, 1, 3, 9, 9, 9), Size: 2, SkipUpTo: 2}
		if BlockMaxRow(a, 0); !slices.Equal(F32(a.Out), c.want) {
			t.Errorf("%d keys: %v, want %v", c.keys, F32(a.Out), c.want)
		}
	}
	for _, c := range []struct {
		keys int32
		skip int
		want string
	}{{6, 2, ""}, {7, 2, "row 0 has 7 keys, but scores have 6 columns"}, {7, 7, ""}} {
		a := &kernel.BlockMaxArgs{Scores: floats(t, 1, 6), Lens: ints(t, 1, 1, c.keys), SkipUpTo: c.skip}
		wantArgument(t, "block max", CheckBlocks(a), c.want)
	}
	key := &kernel.ScoreArgs{Blocks: ints(t, 2, 2, 0, 3, 1, 5), BlockKeys: 4}
	for s, want := range []int{4, 5, 6, 7, 20, 21, 22, 23} {
		if got := BlockKey(key, 1, s); got != want {
			t.Errorf("column %d is key %d, want %d", s, got, want)
		}
	}
}

// A row of attention over whole sequences must have a row of the page table with enough pages, all of them in the pool.
func TestKeysOfWholeSequencesAreChecked(t *testing.T) {
	for _, c := range []struct {
		name       string
		keys, row  int32
		last, none int32 // last page of the row, and the page after it
		want       string
	}{
		{"as it is", 6, 1, 4, 0, ""}, {"no keys", 0, 9, 9, 9, ""}, {"pages that are not read", 3, 1, 9, 9, ""},
		{"a row too many", 6, 2, 4, 0, "row 2 of the page table"},
		{"a negative row", 6, -1, 4, 0, "row -1 of the page"},
		{"all pages", 9, 1, 4, 0, ""}, {"too many keys", 10, 1, 4, 0, "attends to 10 keys"},
		{"a page too many", 6, 1, 5, 0, "is page 5, outside the pool of 5 pages"},
		{"a negative page", 6, 1, -1, 0, "is page -1, outside the pool"},
	} {
		mem, err := kernel.New(Memory{}, kernel.U8, 5, 3)
		if err != nil {
			t.Fatal(err)
		}
		a := &kernel.LatentArgs{Q: floats(t, 1, 1), Lens: ints(t, 1, 1, c.keys), TableRow: ints(t, 1, 1, c.row),
			Table: ints(t, 2, 3, 0, 0, 0, 0, c.last, c.none), Pool: kernel.Pool{Mem: mem, PageTokens: 3}}
		wantArgument(t, c.name, CheckLatent(a), c.want)
	}
}

// The first sublayer with hyper-connections uses only the first stream. A later sublayer uses the coefficients that the
// previous sublayer stored. Each sublayer stores the coefficients for the next one, if there is one.
func TestCarriedCoefficients(t *testing.T) {
	a := &kernel.HyperPreArgs{}
	if got := Carry(a, 0, []float64{5, 6}); !slices.Equal(got, []float64{5, 6}) {
		t.Errorf("without a site after it: %v", got)
	}
	a.Pre = floats(t, 2, 2)
	if got := Carry(a, 1, []float64{5, 6}); !slices.Equal(got, []float64{1, 0}) ||
		!slices.Equal(F32(a.Pre), []float32{0, 0, 5, 6}) {
		t.Errorf("the first site: %v, carried %v", got, F32(a.Pre))
	}
	a.Carried = floats(t, 2, 2, 1, 2, 3, 4)
	if got := Carry(a, 1, []float64{7, 8}); !slices.Equal(got, []float64{3, 4}) ||
		!slices.Equal(F32(a.Pre), []float32{0, 0, 7, 8}) {
		t.Errorf("a later site: %v, carried %v", got, F32(a.Pre))
	}
}

// An expert replaces another of the same types and shapes, whether weights are packed or not. Another shape, several
// experts or a number out of range are refused, and nothing is written.
func TestReplacedExperts(t *testing.T) {
	expert := func(v float32, inner int) kernel.ExpertWeights {
		w := func(out, in int, v float32) []kernel.Weight {
			x := floats(t, out, in)
			for i := range F32(x) {
				F32(x)[i] = v + float32(i)
			}
			return []kernel.Weight{{Data: x}}
		}
		return kernel.ExpertWeights{Gate: w(inner, 4, v), Up: w(inner, 4, v+100), Down: w(4, inner, v+200)}
	}
	join := func(list ...kernel.ExpertWeights) (all kernel.ExpertWeights) {
		for _, w := range list {
			all.Gate, all.Up = append(all.Gate, w.Gate...), append(all.Up, w.Up...)
			all.Down = append(all.Down, w.Down...)
		}
		return all
	}
	for name, m := range map[string]Memory{"packed": Packed(), "mapped": {}} {
		x, err := m.Experts(join(expert(1000, 2), expert(2000, 2)))
		if err != nil {
			t.Fatal(err)
		}
		if x.Count() != 2 || x.Hidden() != 4 || x.Inner() != 2 {
			t.Errorf("%s: %d experts of %d x %d", name, x.Count(), x.Inner(), x.Hidden())
		}
		for _, c := range []struct {
			name string
			at   int
			with kernel.ExpertWeights
			want string
		}{
			{"a number too many", 2, expert(1, 2), "replace expert 2 (of 2)"},
			{"a negative number", -1, expert(1, 2), "replace expert -1 (of 2)"},
			{"two experts", 0, join(expert(1, 2), expert(2, 2)), "2 experts were given"},
			{"another shape", 0, expert(1, 3), "cannot replace one of"},
			{"the last", 1, expert(5000, 2), ""},
		} {
			wantArgument(t, name+", "+c.name, m.Replace(x, c.at, c.with), c.want)
		}
		for i, first := range []float32{1000, 5000} {
			for at, own := range []*Matrix{x.Gate[i], x.Up[i], x.Down[i]} {
				for j, v := range F32(own.Data) {
					if want := first + float32(100*at+j); v != want {
						t.Errorf("%s: element %d of matrix %d of expert %d is %v, want %v", name, j, at, i, v, want)
					}
				}
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*kernel.Tensor)
		alike  bool
	}{
		"equal":               {func(*kernel.Tensor) {}, true},
		"another type":        {func(x *kernel.Tensor) { x.DType = kernel.I32 }, false},
		"more rows":           {func(x *kernel.Tensor) { x.Rows++ }, false},
		"more columns":        {func(x *kernel.Tensor) { x.Cols++ }, false},
		"nothing":             {func(x *kernel.Tensor) { *x = kernel.Tensor{} }, false},
		"rows that are apart": {func(x *kernel.Tensor) { x.Stride++ }, true},
	} {
		a := floats(t, 2, 2)
		b := a
		if c.change(&b); alike(a, b) != c.alike || alike(b, a) != c.alike {
			t.Errorf("%s: alike %t", name, alike(a, b))
		}
	}
	if !alike(kernel.Tensor{}, kernel.Tensor{}) {
		t.Error("two absent tensors are not alike")
	}
}

// Only rows that the table has can be read.
func TestNumbersOfTableRows(t *testing.T) {
	for id, want := range map[int32]string{0: "", 3: "", 4: "row 4 is outside the 4 rows", -1: "row -1 is outside"} {
		a := &kernel.TableArgs{IDs: ints(t, 2, 2, 0, 1, 2, id), Table: &kernel.Table{Values: floats(t, 4, 2)}}
		wantArgument(t, "table", CheckTable(a), want)
	}
}

// Tokens are sampled for every row with sampling parameters, with scratch memory for a vocabulary of any size; the
// tokens of other rows do not change.
func TestDrawnTokens(t *testing.T) {
	var s Sampler
	for _, vocabulary := range []int{3, 200, 5} {
		logits, ids, want := floats(t, 4, vocabulary), ints(t, 4, 1), make([]int32, 4)
		draws, drawn := ints(t, 4, sample.DrawWords), 0
		scratch, err := sample.NewScratch(vocabulary)
		if err != nil {
			t.Fatal(err)
		}
		for r := range 4 {
			best := int32((r + 1) % vocabulary)
			RowF32(logits, r)[best] = 5
			RowF32(logits, r)[(r+2)%vocabulary] = 4.9
			I32(ids)[r], want[r] = best, best
			if r == 1 {
				continue
			}
			draw := sample.Draw{Inverse: 1, TopP: 1, Random: uint64(5*r+1) << 60}
			draw.Put(RowI32(draws, r))
			if want[r] = scratch.Choose(RowF32(logits, r), best, draw); want[r] != best {
				drawn++
			}
		}
		if err := s.Sample(kernel.SampleArgs{IDs: ids, Logits: logits, Draws: draws}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(I32(ids), want) || drawn == 0 {
			t.Errorf("vocabulary of %d: tokens %v, want %v, %d of them not the best", vocabulary, I32(ids), want, drawn)
		}
	}
}

// A CPU has the single device number 0, and it accepts only matrices that it prepared itself.
func TestOneDeviceAndItsMatrices(t *testing.T) {
	if err := OneDevice(kernel.Options{}); err != nil {
		t.Error(err)
	}
	if err := OneDevice(kernel.Options{Ordinal: 1}); !errors.Is(err, kernel.ErrUnavailable) {
		t.Errorf("device 1: error %v", err)
	}
	own := &Matrix{}
	if m, err := Own("test", own); err != nil || m != own {
		t.Errorf("its own matrix: %v, %v", m, err)
	}
	if _, err := Own("test", nil); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a matrix of another device: error %v", err)
	}
}

// Keys that are moved to another page have the same bytes as keys that are encoded for that page, in every layout.
func TestMovedKeys(t *testing.T) {
	for _, kind := range []layout.Kind{layout.IndexPage132, layout.IndexPage68, layout.V41Index68,
		layout.IndexF32Row512} {
		l, err := layout.IndexOf(kind)
		if err != nil {
			t.Fatal(err)
		}
		pool := func(pages, tokens int) kernel.Pool {
			mem, err := kernel.New(Memory{}, kernel.U8, pages, l.PageBytes(tokens))
			if err != nil {
				t.Fatal(err)
			}
			return kernel.Pool{Mem: mem, Layout: kind, PageTokens: tokens}
		}
		encode := func(p kernel.Pool, slot int32, token int) {
			page, at, err := Place("test", p, slot)
			if err != nil {
				t.Fatal(err)
			}
			key := make([]float32, layout.IndexDim)
			for i := range key {
				key[i] = float32((i+1)*(token+3)%17) / 4
			}
			if err := EncodeKey(p, page, at, key, num.ScalePow2); err != nil {
				t.Fatal(err)
			}
		}
		src, dst, want := pool(3, 4), pool(1, 7), pool(1, 7)
		for slot := range int32(12) {
			encode(src, slot, int(slot))
		}
		for _, move := range [][3]int32{{0, 5, 3}, {3, 9, 1}, {5, 0, 2}} { // destination, source, number of keys
			if err := MoveIndex(dst, int(move[0]), src, move[1], int(move[2])); err != nil {
				t.Fatal(err)
			}
			for i := range move[2] {
				encode(want, move[0]+i, int(move[1]+i))
			}
		}
		if !bytes.Equal(Bytes(dst.Mem), Bytes(want.Mem)) {
			t.Errorf("%v: the moved keys differ from those that were encoded in their place", kind)
		}
		wantArgument(t, "a slot too many", MoveIndex(dst, 0, src, 12, 1), "slot 12 is outside")
	}
}
