package mla

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"sparrow/internal/attn"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// SelfTest computes the attention of one layer in sparse and in dense form, with the layer's weights, with random keys
// and queries. Rows with K-1 and K keys select all keys, so sparse attention must equal dense attention. Rows with K+1
// and 2K keys must select the keys that a stable sort of the scores selects, and sparse attention must equal dense
// attention over that selection. Without an indexer, attention over whole pages must equal dense attention. SelfTest
// frees its memory at the end.
func (a *Attention) SelfTest(dev kernel.Device, w *Weights, cfg *plan.Config, l Layouts) (err error) {
	t := selfTest{Attention: a, dev: dev, w: w, page: cfg.Page, layouts: l, heads: cfg.ScoredHeads(),
		split: cfg.SplitKeys.Keys(), seed: 1}
	k := a.params.TopK
	if t.k, t.keys, t.lens = k, 2*k, []int32{int32(k - 1), int32(k), int32(k + 1), int32(2 * k)}; k == 1 {
		t.lens = t.lens[1:]
	}
	if w.Index == nil {
		t.k, t.keys, t.lens = wholeTest, wholeTest, []int32{1, wholeTest/2 - 1, wholeTest / 2, wholeTest}
	}
	measure := kernel.MeasureArena()
	if err := t.arrange(measure); err != nil {
		return err
	}
	mem, err := kernel.NewArena(dev, measure.High())
	if err != nil {
		return fmt.Errorf("mla: self-test: %d bytes: %w", measure.High(), err)
	}
	defer mem.Free(dev)
	if err := t.arrange(mem); err != nil {
		return err
	}
	return t.run()
}

// wholeTest is the number of keys of the longest row if the model has no indexer.
const wholeTest = 640

// selfTest holds the tensors of a self-test. Its rows have K-1, K, K+1 and 2K keys of one sequence or, without an
// indexer, several numbers of keys up to K.
type selfTest struct {
	*Attention
	dev     kernel.Device
	w       *Weights
	page    int
	layouts Layouts
	heads   int // heads of the indexer, padded to a number that the device supports
	split   int // number of keys after which a row is cut into parts
	seed    uint64
	k, keys int // K, and the number of keys of the sequence

	lens  []int32 // number of keys that each row may attend to
	table []int32 // pages of the sequence, in random order

	cache                         Cache
	keyAngles, keyPlaces, keySlot kernel.Tensor // f32 [2K, rope], i32 [2K, 1] twice
	kv, key                       kernel.Tensor // activation [2K, 576], [2K, 128]
	pages                         kernel.Tensor // i32 [1, pages]

	hidden, latent, query kernel.Tensor // activation [R, hidden], [R, q_lora], [R, heads*(nope+rope)]
	angles                kernel.Tensor // f32 [R, rope]
	places, tableRow      kernel.Tensor // i32 [R, 1]
	seen, kept            kernel.Tensor // i32 [R, 1]: number of keys that a row may select, and that it attends to
	raw                   attn.Queries
	codes, weights        kernel.Tensor // prepared indexer queries and their weights
	scores                kernel.Tensor // f32 [R, keys]
	selected, slots       kernel.Tensor // i32 [R, K]
	absorbed, mixed       kernel.Tensor // activation [R, heads*576], [R, heads*512]
	most                  kernel.Tensor // f32 [R, heads]: largest score
	sparse, dense         kernel.Tensor // activation [R, heads*v]

	gather, start, count kernel.Tensor // i32 [K, 1] slots of a dense row's keys, i32 [1, 1] twice
	rows, up             kernel.Tensor // activation [K, 576], [K, heads*(nope+v)]
}

// arrange allocates the memory of the self-test.
func (t *selfTest) arrange(m *kernel.Arena) error {
	p, d := &t.params, t.params.Dims
	r, k, keys := len(t.lens), t.k, t.keys
	pages := (keys + t.page - 1) / t.page
	main, err := layout.MainOf(t.layouts.Main)
	if err != nil {
		return err
	}
	act, f32, i32 := t.act, kernel.F32, kernel.I32
	t.cache = Cache{Main: kernel.Pool{Mem: m.Take(kernel.U8, pages, main.PageBytes(t.page)), Layout: t.layouts.Main,
		PageTokens: t.page}}
	t.keyAngles = m.Take(f32, keys, 2*len(p.InvFreq))
	t.keyPlaces, t.keySlot = m.Take(i32, keys, 1), m.Take(i32, keys, 1)
	t.kv, t.pages, t.latent = m.Take(act, keys, d.Row()), m.Take(i32, 1, pages), m.Take(act, r, t.w.QB.In())
	t.query, t.angles = m.Take(act, r, d.Heads*d.QK()), m.Take(f32, r, 2*len(p.InvFreq))
	t.places, t.tableRow, t.seen, t.kept = m.Take(i32, r, 1), m.Take(i32, r, 1), m.Take(i32, r, 1), m.Take(i32, r, 1)
	t.selected, t.slots = m.Take(i32, r, k), m.Take(i32, r, k)
	t.absorbed, t.mixed = m.Take(act, r, d.Heads*d.Row()), m.Take(act, r, d.Heads*d.Latent)
	t.most = m.Take(f32, r, d.Heads)
	t.sparse, t.dense = m.Take(act, r, d.Heads*d.V), m.Take(act, r, d.Heads*d.V)
	t.gather, t.start, t.count = m.Take(i32, k, 1), m.Take(i32, 1, 1), m.Take(i32, 1, 1)
	t.rows, t.up = m.Take(act, k, d.Row()), m.Take(act, k, d.KVB())
	for i := range pages {
		t.table = append(t.table[:i], int32(pages-1-i))
	}
	if t.w.Index == nil {
		return nil
	}
	return t.arrangeIndex(m, pages)
}

// arrangeIndex allocates the memory of the indexer.
func (t *selfTest) arrangeIndex(m *kernel.Arena, pages int) error {
	index, err := layout.IndexOf(t.layouts.Index)
	if err != nil {
		return err
	}
	r, act, kind := len(t.lens), t.act, kernel.F32
	if t.layouts.Index == layout.IndexPage132 {
		kind = kernel.E4M3
	}
	t.cache.Index = kernel.Pool{Mem: m.Take(kernel.U8, pages, index.PageBytes(t.page)), Layout: t.layouts.Index,
		PageTokens: t.page}
	t.key, t.hidden = m.Take(act, t.keys, layout.IndexDim), m.Take(act, r, t.w.Index.Weights.In())
	t.raw = t.index.TakeQueries(m, act, r)
	t.codes, t.weights = m.Take(kind, r, t.heads*layout.IndexDim), m.Take(kernel.F32, r, t.heads)
	t.scores = m.Take(kernel.F32, r, (pages*t.page+3)&^3)
	return nil
}

// run computes both forms and compares their outputs.
func (t *selfTest) run() error {
	if err := t.fill(); err != nil {
		return fmt.Errorf("mla: self-test: %w", err)
	}
	t.list.At("self-test", -1)
	t.store()
	t.choose()
	if err := t.list.Run(); err != nil {
		return fmt.Errorf("mla: self-test: %w", err)
	}
	chosen, err := t.checkSelections()
	if err != nil {
		return err
	}
	scale, err := t.attendSparse()
	if err != nil {
		return err
	}
	for r, positions := range chosen {
		if err := t.attendDense(r, positions, scale); err != nil {
			return fmt.Errorf("mla: self-test: %w", err)
		}
	}
	return t.checkOutputs()
}

// fill writes the inputs.
func (t *selfTest) fill() error {
	var places, slots, last, kept []int32
	for p := range t.keys {
		places = append(places, int32(p))
		slots = append(slots, t.slot(p))
	}
	for _, n := range t.lens {
		last = append(last, n-1)
		kept = append(kept, min(n, int32(t.k)))
	}
	for _, x := range []struct {
		to kernel.Tensor
		v  []int32
	}{{t.keyPlaces, places}, {t.keySlot, slots}, {t.places, last}, {t.tableRow, make([]int32, len(t.lens))},
		{t.seen, t.lens}, {t.kept, kept}, {t.pages, t.table}, {t.start, []int32{0}}} {
		if err := kernel.WriteI32(t.dev, x.to, x.v); err != nil {
			return err
		}
	}
	// Bytes of 255 are NaN in every layout, so that a row that was not stored makes outputs NaN.
	for _, p := range []kernel.Tensor{t.cache.Main.Mem, t.cache.Index.Mem} {
		if !p.Given() {
			continue
		}
		if err := t.dev.Write(p, bytes.Repeat([]byte{0xff}, int(p.Extent()))); err != nil {
			return err
		}
	}
	for _, x := range []kernel.Tensor{t.kv, t.key, t.hidden, t.latent} {
		if !x.Given() {
			continue
		}
		if err := t.random(x); err != nil {
			return err
		}
	}
	return nil
}

// slot returns the slot of key p of the sequence in the cache.
func (t *selfTest) slot(p int) int32 { return t.table[p/t.page]*int32(t.page) + int32(p%t.page) }

// random fills an activation with pseudo-random values that are nearly normally distributed and the same in every run.
func (t *selfTest) random(to kernel.Tensor) error {
	wide, narrow := make([]float32, to.Rows*to.Cols), []uint16(nil)
	for i := range wide {
		sum := float32(0)
		for range 4 { // uniform between -1 and 1, of variance 1/3 each
			t.seed = t.seed*6364136223846793005 + 1442695040888963407
			sum += float32(t.seed>>40)/(1<<23) - 1
		}
		wide[i] = sum * 0.866
	}
	if to.DType == kernel.F32 {
		return kernel.WriteF32(t.dev, to, wide)
	}
	for _, v := range wide {
		narrow = append(narrow, num.BF16(v))
	}
	// The bytes of narrow: 2 for each element.
	return t.dev.Write(to, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(narrow))), 2*len(narrow)))
}

// store writes the keys to the cache.
func (t *selfTest) store() {
	t.list.Add(kernel.AngleArgs{Out: t.keyAngles, Positions: t.keyPlaces, InvFreq: t.freq, Scale: t.params.CosScale})
	t.list.Add(kernel.StoreArgs{KV: t.kv, Norm: t.w.KVNorm, Eps: t.params.LatentEps, Angles: t.keyAngles,
		Slots: t.keySlot, Pool: t.cache.Main})
	if t.w.Index == nil {
		return
	}
	t.list.Add(kernel.IndexStoreArgs{Key: t.key, Weight: t.w.Index.KNorm, Bias: t.w.Index.KBias, Eps: indexEps,
		Angles: t.keyAngles, Pairing: t.params.IndexPairing, Hadamard: attn.Hadamard(t.layouts.Index), Slots: t.keySlot,
		Pool: t.cache.Index})
}

// choose scores the keys and selects among them.
func (t *selfTest) choose() {
	p, d := &t.params, t.params.Dims
	t.list.Add(kernel.AngleArgs{Out: t.angles, Positions: t.places, InvFreq: t.freq, Scale: p.CosScale})
	t.list.Add(kernel.MultiplyArgs{Out: t.query, X: t.latent, W: t.w.QB})
	t.list.Add(kernel.RotateArgs{X: t.query, Angles: t.angles, Heads: d.Heads, HeadDim: d.QK(), Offset: d.Nope,
		Pairing: kernel.Interleaved})
	if t.w.Index == nil {
		t.list.Add(kernel.SelectArgs{Out: t.selected, Lens: t.seen})
		return
	}
	t.list.Add(kernel.MultiplyArgs{Out: t.raw.Q, X: t.latent, W: t.w.Index.Q})
	t.list.Add(kernel.MultiplyArgs{Out: t.raw.Weights, X: t.hidden, W: t.w.Index.Weights})
	t.list.Add(kernel.IndexQueryArgs{Out: t.codes, W: t.weights, Q: t.raw.Q, Weights: t.raw.Weights,
		Angles: t.angles, Heads: t.index.Heads, Padded: t.heads, Offset: t.index.Offset, Pairing: t.index.Pairing,
		Hadamard: attn.Hadamard(t.layouts.Index), Scales: t.index.Scales})
	t.list.Add(kernel.ScoreArgs{Out: t.scores, Q: t.codes, W: t.weights, Keys: t.cache.Index, Table: t.pages,
		TableRow: t.tableRow, Lens: t.seen, Heads: t.heads, SkipUpTo: p.TopK})
	t.list.Add(kernel.SelectArgs{Out: t.selected, Scores: t.scores, Lens: t.seen})
}

// checkSelections compares the selections with a stable sort of the scores and returns the selections of the sort.
func (t *selfTest) checkSelections() ([][]int32, error) {
	k := t.k
	scores, got := make([]float32, t.scores.Rows*t.scores.Cols), make([]int32, len(t.lens)*k)
	if t.scores.Given() {
		if err := kernel.ReadF32(t.dev, scores, t.scores); err != nil {
			return nil, fmt.Errorf("mla: self-test: scores: %w", err)
		}
	}
	if err := kernel.ReadI32(t.dev, got, t.selected); err != nil {
		return nil, fmt.Errorf("mla: self-test: selections: %w", err)
	}
	var out [][]int32
	for r, n := range t.lens {
		row := scores[min(r*t.scores.Cols, len(scores)):]
		want := make([]int32, n)
		for i := range want {
			want[i] = int32(i)
		}
		if int(n) > k {
			for i, v := range row[:n] {
				if v != v || math.IsInf(float64(v), 0) {
					return nil, fmt.Errorf("mla: self-test: of %d keys, the score of key %d is %v", n, i, v)
				}
			}
			slices.SortStableFunc(want, func(x, y int32) int {
				switch {
				case row[x] > row[y]:
					return -1
				case row[x] < row[y]:
					return 1
				}
				return 0
			})
			want = want[:k]
			slices.Sort(want)
		}
		mine := got[r*k:][:k]
		for i, p := range want {
			if mine[i] != p {
				return nil, fmt.Errorf("mla: self-test: of %d keys, number %d of the selection is key %d; a stable "+
					"sort of the scores selects key %d", n, i, mine[i], p)
			}
		}
		if i := slices.IndexFunc(mine[len(want):], func(p int32) bool { return p != -1 }); i >= 0 {
			return nil, fmt.Errorf("mla: self-test: the selection of all %d keys has another entry, %d, after them", n,
				mine[len(want)+i])
		}
		out = append(out, want)
	}
	return out, nil
}

// softest is the maximum scaled score in the self-test. Rounding errors grow with the score, and attention weights
// change by the exponential of the error.
const softest = 4

// attendSparse computes attention over the selections in latent space. It returns the scale of the scores: that of the
// model, or a smaller scale with which all scores are at most softest.
func (t *selfTest) attendSparse() (scale float32, err error) {
	p, d := &t.params, t.params.Dims
	t.list.At("self-test", -1)
	t.list.Add(kernel.AbsorbArgs{Out: t.absorbed, Q: t.query, KVB: t.w.KVB, Dims: d})
	t.list.Add(kernel.LocateArgs{Out: t.slots, Positions: t.selected, Table: t.pages, TableRow: t.tableRow,
		PageTokens: t.page})
	attend := kernel.SparseArgs{Out: t.mixed, Q: t.absorbed, Pool: t.cache.Main, Indices: t.slots, Lens: t.kept,
		Heads: d.Heads, Scale: p.Scale, Max: t.most, SplitKeys: t.split}
	t.list.Add(attend)
	if err := t.list.Run(); err != nil {
		return 0, fmt.Errorf("mla: self-test: %w", err)
	}
	most, largest := make([]float32, t.most.Rows*t.most.Cols), float32(0)
	if err := kernel.ReadF32(t.dev, most, t.most); err != nil {
		return 0, fmt.Errorf("mla: self-test: largest scores: %w", err)
	}
	for _, v := range most {
		if v != v || math.IsInf(float64(v), 0) {
			return 0, fmt.Errorf("mla: self-test: attention: row maximum is %v, want a finite number", v)
		}
		largest = max(largest, v)
	}
	if largest > softest {
		attend.Scale *= softest / largest
	}
	if t.w.Index != nil {
		t.list.Add(attend)
	} else {
		t.list.Add(kernel.LatentArgs{Out: t.mixed, Q: t.absorbed, Pool: t.cache.Main, Table: t.pages,
			TableRow: t.tableRow, Lens: t.seen, Heads: d.Heads, Scale: attend.Scale})
	}
	t.list.Add(kernel.ExpandArgs{Out: t.sparse, U: t.mixed, KVB: t.w.KVB, Dims: d})
	if err := t.list.Run(); err != nil {
		return 0, fmt.Errorf("mla: self-test: %w", err)
	}
	return attend.Scale, nil
}

// attendDense computes attention of one row, with expanded keys and values, over only the keys at the given positions.
func (t *selfTest) attendDense(r int, positions []int32, scale float32) error {
	d, n := t.params.Dims, len(positions)
	slots := make([]int32, n)
	for i, p := range positions {
		slots[i] = t.slot(int(p))
	}
	if err := kernel.WriteI32(t.dev, t.gather, slots); err != nil {
		return err
	}
	if err := kernel.WriteI32(t.dev, t.count, []int32{int32(n)}); err != nil {
		return err
	}
	rows, up := t.rows.Slice(0, n), t.up.Slice(0, n)
	t.list.At("self-test", -1)
	t.list.Add(kernel.GatherArgs{Out: rows, Slots: t.gather.Slice(0, n), Pool: t.cache.Main})
	t.list.Add(kernel.MultiplyArgs{Out: up, X: rows.Columns(0, d.Latent), W: t.w.KVB})
	t.list.Add(kernel.DenseArgs{Out: t.dense.Slice(r, r+1), Q: t.query.Slice(r, r+1), KV: up,
		Rope: rows.Columns(d.Latent, d.Row()), Start: t.start, Lens: t.count, Dims: d, Scale: scale})
	return t.list.Run()
}

// The allowed difference between sparse and dense attention, relative to the root mean square of the outputs. bf16
// rounds each value of absorbed queries and expanded keys by up to 2^-9, which changes a weight by at most 0.02 for
// scores up to softest; sums over keys average these changes.
const (
	selfTestBF16 = 0.02
	selfTestF32  = 0.001
)

// The allowed relative difference between the norms of a head's outputs over all rows; it is smaller, because rounding
// errors of both signs cancel.
const (
	selfTestHeadBF16 = 0.005
	selfTestHeadF32  = 0.001
)

// checkOutputs compares both outputs of every row.
func (t *selfTest) checkOutputs() error {
	sparse, err := t.values(t.sparse)
	if err != nil {
		return err
	}
	dense, err := t.values(t.dense)
	if err != nil {
		return err
	}
	most := selfTestF32
	if t.act == kernel.BF16 {
		most = selfTestBF16
	}
	for r, n := range t.lens {
		var diff, size float64
		for c := range t.dense.Cols {
			a, b := float64(sparse[r*t.dense.Cols+c]), float64(dense[r*t.dense.Cols+c])
			diff, size = diff+(a-b)*(a-b), size+b*b
		}
		if share := math.Sqrt(diff / size); !(share <= most) {
			form := "sparse"
			if t.w.Index == nil {
				form = "latent"
			}
			return fmt.Errorf("mla: self-test: row with %d keys: %s attention has relative L2 error %.3g against "+
				"dense attention over the same %d keys, want at most %.3g (the limit for rounding)", n, form, share,
				min(int(n), t.k), most)
		}
	}
	return t.checkHeads(sparse, dense)
}

// checkHeads compares the size of every head's outputs over all rows: the factor by which the outputs of one form are
// multiplied to be closest to the other's.
func (t *selfTest) checkHeads(sparse, dense []float32) error {
	most := selfTestHeadF32
	if t.act == kernel.BF16 {
		most = selfTestHeadBF16
	}
	width := t.params.Dims.V
	for h := range t.params.Dims.Heads {
		var both, size float64
		for r := range t.lens {
			for c := h * width; c < (h+1)*width; c++ {
				a, b := float64(sparse[r*t.dense.Cols+c]), float64(dense[r*t.dense.Cols+c])
				both, size = both+a*b, size+b*b
			}
		}
		if factor := both / size; !(math.Abs(factor-1) <= most) {
			return fmt.Errorf("mla: self-test: the outputs of head %d in latent space are %.5g times those of dense "+
				"attention, want a factor within %.3g of 1 (the limit for rounding)", h, factor, most)
		}
	}
	return nil
}

// values reads an activation as float32.
func (t *selfTest) values(x kernel.Tensor) ([]float32, error) {
	out := make([]float32, x.Rows*x.Cols)
	if x.DType == kernel.F32 {
		return out, kernel.ReadF32(t.dev, out, x)
	}
	raw := make([]byte, 2*len(out))
	if err := t.dev.Read(raw, x); err != nil {
		return nil, fmt.Errorf("mla: self-test: outputs: %w", err)
	}
	for i := range out {
		out[i] = num.FromBF16(uint16(raw[2*i]) | uint16(raw[2*i+1])<<8)
	}
	return out, nil
}
