package bench

import (
	"encoding/binary"
	"fmt"
	"math"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel/cuda"
)

const (
	expertHidden = 7168
	expertInner  = 2048
	expertTop    = 8
	packedTile   = 32768
)

// expertCases returns the experts of a DeepSeek-V3.2 layer. The peer is DeepGEMM's grouped GEMM of the same shape,
// which starts from quantised and sorted rows and writes gate and up to memory.
func expertCases() []Case {
	var list []Case
	for _, c := range []struct {
		experts, rows          int32
		whole, sixteenth, e2m1 bool
	}{
		{64, 1, true, false, true}, {64, 8, true, false, true}, {64, 64, true, true, false},
		{64, 128, true, false, true}, {64, 512, false, false, true}, {64, 1024, false, false, true},
		{64, 4096, true, true, false}, {32, 4096, false, false, false}, {256, 64, true, false, true},
		{256, 4096, false, false, false},
	} {
		shape := cuda.ExpertShape{Experts: c.experts, Hidden: expertHidden, Inner: expertInner}
		add := func(names ...string) {
			for _, name := range names {
				list = append(list, expertCase(shape, int(c.rows), name))
			}
		}
		add("experts_gate_up", "experts_down")
		if c.whole {
			add("experts")
		}
		if c.e2m1 {
			shape.E2M1 = true
			add("experts_gate_up", "experts_down")
		}
		if c.sixteenth {
			for _, e2m1 := range []bool{false, true} {
				shape.BF16, shape.E2M1 = !e2m1, e2m1
				add("experts_gate_up", "experts_down")
			}
		}
	}
	shape := cuda.ExpertShape{Experts: 64, Hidden: expertHidden, Inner: expertInner}
	return append(list, expertCase(shape, 8192, "experts"))
}

type expertSet struct {
	shape         cuda.ExpertShape
	args          cuda.ExpertsArgs
	name          string
	pattern, x    []byte // bytes that weights and rows repeat
	scales        [2][]float32
	ids           []int32
	gateUp, downs int // bytes of one expert's gate-up matrix and of its down matrix
}

// expertCase returns a case in which all experts are chosen equally often, as far as possible.
func expertCase(shape cuda.ExpertShape, rows int, name string) Case {
	pairs := rows * expertTop
	used := min(pairs, int(shape.Experts))
	gateUp, gateUpScales, down, downScales := shape.PackedBytes()
	c := Case{Rate: FP8}
	kind, size := "e4m3", 1
	if shape.BF16 {
		c.Rate, kind, size = BF16, "bf16", 2
	}
	if shape.E2M1 {
		kind = "e2m1"
	}
	c.Case = titled(name, "%s, %d x %d rows", kind, used, pairs/used)
	if int(shape.Experts) != used {
		c.Shape += fmt.Sprintf(" of %d", shape.Experts)
	}
	product := 2 * float64(pairs) * expertHidden * expertInner
	if name != "experts_down" {
		c.FLOPs += 2 * product
		c.Bytes += float64(used)*float64(gateUp+gateUpScales) + float64(rows*expertHidden*size) +
			float64(pairs*expertInner*size)
	}
	if name != "experts_gate_up" {
		c.FLOPs += product
		c.Bytes += float64(used)*float64(down+downScales) + float64(pairs*expertInner*size) +
			float64(pairs*expertHidden*2)
	}
	if name == "experts" {
		c.Bytes += float64(pairs*expertHidden*2) + float64(3*rows*expertHidden*2)
	}
	c.SetBytes = float64(used) * float64(gateUp+down)
	if used < int(shape.Experts) {
		c.SetBytes /= 8 // use several sets, because one set is partly in the L2 cache
	}
	c.New = func(h *holder) Set { return newExpertSet(h, shape, rows, name) }
	return c
}

func newExpertSet(h *holder, shape cuda.ExpertShape, rows int, name string) Set {
	k := h.rig.Kernels
	e := &expertSet{shape: shape, name: name}
	values := make([]byte, 0, 1<<16)
	for len(values) < 1<<16 {
		if v := float32(h.rng.NormFloat64()); shape.BF16 {
			values = binary.LittleEndian.AppendUint16(values, num.BF16(v/64))
		} else {
			values = append(values, num.E4M3(v*60))
		}
	}
	e.pattern = make([]byte, 37*e.tile()) // not a divisor of an expert's bytes, so that all experts differ
	for i := 0; i < len(e.pattern); i += 2 {
		copy(e.pattern[i:i+2], values[h.rng.Uint32()%(1<<15)*2:])
	}
	if shape.E2M1 {
		for i := range e.pattern {
			if e.pattern[i] = byte(h.rng.Uint32()); i%expect.FoldedPiece >= expect.FoldedCodes {
				e.pattern[i] = 8 * (10 + e.pattern[i]%5) // five different scale exponents
			}
		}
	}
	e.x = raw(h.bf16s(37 * expertHidden))
	gateUp, gateUpScales, down, downScales := shape.PackedBytes()
	e.gateUp, e.downs = int(gateUp), int(down)
	n := int(shape.Experts)
	packed := cuda.PackedExperts{GateUp: h.repeat(e.pattern, n*e.gateUp), Down: h.repeat(e.pattern, n*e.downs)}
	if !shape.BF16 {
		for i := range e.scales {
			e.scales[i] = h.floats(2*1031, 2e-5, 2e-4)
		}
		packed.GateUpScales = h.repeat(raw(e.scales[0]), n*int(gateUpScales))
		packed.DownScales = h.repeat(raw(e.scales[1]), n*int(downScales))
	}
	weights := make([]float32, rows*expertTop)
	for i := range weights {
		e.ids = append(e.ids, int32(i)%shape.Experts)
		weights[i] = h.rng.Float32()
	}
	x := cuda.Experts{Shape: shape, Packed: packed, X: h.repeat(e.x, rows*expertHidden*2),
		Out: h.repeat(make([]byte, expertHidden*2), rows*expertHidden*2), IDs: putAll(h, e.ids),
		Weights: putAll(h, weights), Scratch: h.alloc(int(shape.ScratchBytes(int32(rows), expertTop))),
		XStride: expertHidden, OutStride: expertHidden, IDStride: expertTop,
		WeightStride: expertTop, Rows: int32(rows), Top: expertTop, Scales: num.ScalePow2}
	if h.err == nil {
		e.args, h.err = x.Encode()
	}
	pairs := rows * expertTop
	inner := span{e.args.Inner, pairs * int(e.args.InnerPitch)}
	if e.args.GroupRows == placedGroup { // each expert's rows are rounded up to a multiple of 8
		inner.bytes += 8 * n * int(e.args.InnerPitch)
	}
	results := span{e.args.Results, pairs * expertHidden * 2}
	gateUpOf := func(s *cuda.Stream) error { return cuda.MultiplyGateUp(k, s, shape, &e.args) }
	launch := overlapping(func(s *cuda.Stream) error { return cuda.RunExperts(k, s, shape, &e.args) })
	switch name {
	case "experts_gate_up":
		h.outputs, launch = append(h.outputs, inner), gateUpOf
	case "experts_down":
		h.outputs = append(h.outputs, results)
		launch = func(s *cuda.Stream) error { return cuda.MultiplyDown(k, s, shape, &e.args) }
	default:
		h.outputs = append(h.outputs, inner, results)
	}
	if h.err == nil && name != "experts" {
		h.err = cuda.PrepareExperts(k, h.rig.Stream, shape, &e.args)
	}
	if h.err == nil && name == "experts_down" {
		h.err = gateUpOf(h.rig.Stream)
	}
	return Set{launch, e.check}
}

// tile returns the size of a packed tile in bytes.
func (e *expertSet) tile() int {
	if e.shape.E2M1 {
		return expect.FoldedTile
	}
	return packedTile
}

// weight returns a row of a packed tile of an expert as float32; matrix 0 is gate and up, matrix 1 is down.
func (e *expertSet) weight(matrix int, expert int32, tile, row int) []float64 {
	bytes, blocks := e.gateUp, int(e.args.HiddenBlocks)
	if matrix == 1 {
		bytes, blocks = e.downs, int(e.args.InnerBlocks)
	}
	var out []float64
	for block := range blocks {
		at := int(expert)*bytes + (tile*blocks+block)*e.tile()
		if e.shape.BF16 {
			for c := range 64 {
				i := (at + expect.PackedAt(row, 2*c)) % len(e.pattern)
				out = append(out, float64(num.FromBF16(binary.LittleEndian.Uint16(e.pattern[i:]))))
			}
			continue
		}
		scale := e.scales[matrix][(at/e.tile()*2+row/128)%len(e.scales[matrix])]
		if e.shape.E2M1 {
			stored := e.pattern[at%len(e.pattern):][:e.tile()]
			for c := range 128 {
				out = append(out, expect.Folded(stored, row, c)*float64(scale))
			}
			continue
		}
		for c := range 128 {
			i := (at + expect.PackedAt(row, c)) % len(e.pattern)
			out = append(out, float64(num.FromE4M3(e.pattern[i]))*float64(scale))
		}
	}
	return out
}

// inner reads the activation of pair number place; a pair is a row and one of its experts.
func (e *expertSet) inner(r *reader, place int) []float32 {
	if e.args.GroupRows == placedGroup {
		return e.placed(r, place)
	}
	at := e.args.Inner.Add(int64(place) * int64(e.args.InnerPitch))
	if e.shape.BF16 {
		return r.bf16s(at, expertInner)
	}
	out, row := make([]float32, expertInner), r.bytes(at, int(e.args.InnerPitch))
	scales := r.f32s(e.args.InnerScales.Add(4*int64(place)*int64(e.args.InnerBlocks)), int(e.args.InnerBlocks))
	for b := range expertInner / 128 {
		num.DequantE4M3(out[b*128:][:128], row[b*128:][:128], scales[b])
	}
	return out
}

// placedGroup is the maximum number of rows in a group of the kernels for many rows.
const placedGroup = 256

// placed reads an activation in the layout of these kernels (gather.cuh): rows begin at a multiple of 8 for each
// expert, and a group is stored block by block of k.
func (e *expertSet) placed(r *reader, place int) []float32 {
	counts := make([]int, e.shape.Experts)
	for _, id := range e.ids {
		counts[id]++
	}
	first, listed, expert := 0, 0, 0
	for ; place >= first+counts[expert]; expert++ {
		first += counts[expert]
		listed += min(counts[expert], 1)
	}
	group := (place - first) / placedGroup * placedGroup
	rows, row := min(placedGroup, counts[expert]-group), place-first-group
	rows = (rows + 7) / 8 * 8
	base := int64((first+8*listed)/8*8+group) * int64(e.args.InnerBlocks)
	out := make([]float32, expertInner)
	for b := range expertInner / 128 {
		at := int64(b*rows + row)
		line := r.bytes(e.args.Inner.Add((base+at)*128), 128)
		scale := r.f32s(e.args.InnerScales.Add((base+at)*4), 1)
		codes := make([]byte, 128)
		for c := range 8 {
			copy(codes[16*c:][:16], line[16*(c^row%8):])
		}
		num.DequantE4M3(out[b*128:][:128], codes, scale[0])
	}
	return out
}

// check recomputes parts of some pairs of rows and experts: tiles of the activation from x, and columns of the result
// from the activation on the device.
func (e *expertSet) check(r *reader) error {
	order := expect.SortPairs(e.ids, e.shape.Experts)
	for i := range 5 {
		place := i * (len(order) - 1) / 4
		pair := order[place]
		expert := e.ids[pair]
		inner := e.inner(r, place)
		if e.name != "experts_down" {
			x := make([]float32, expertHidden)
			for c := range x {
				at := (int(pair)/expertTop*expertHidden + c) * 2 % len(e.x)
				x[c] = num.FromBF16(binary.LittleEndian.Uint16(e.x[at:]))
			}
			if !e.shape.BF16 {
				x = expect.Quantised(x, num.ScalePow2)
			}
			tile := i * 3 % (expertInner / 128)
			var most float64
			want := make([]float64, 128)
			for c := range want {
				gate := e.weight(0, expert, tile, expect.GateUpRow(c, false))
				up := e.weight(0, expert, tile, expect.GateUpRow(c, true))
				want[c] = expect.Gated(expect.Dot(gate, x), expect.Dot(up, x), 0)
				most = max(most, math.Abs(want[c]))
			}
			for c, w := range want {
				if g := float64(inner[tile*128+c]); !(math.Abs(g-w) <= math.Abs(w)/15+most/1000) {
					return fmt.Errorf("activation of pair %d, column %d is %g, want %g", place, tile*128+c, g, w)
				}
			}
		}
		if e.name != "experts_gate_up" {
			row := r.bf16s(e.args.Results.Add(2*int64(pair)*expertHidden), expertHidden)
			var off, size float64
			for c := i; c < expertHidden; c += 61 {
				w := expect.Dot(e.weight(1, expert, c/256, c%256), inner)
				g := float64(row[c])
				off += (g - w) * (g - w)
				size += w * w
			}
			if !(math.Sqrt(off) <= 0.005*math.Sqrt(size)) {
				return fmt.Errorf("the result of pair %d differs by %.4f of its norm", pair, math.Sqrt(off/size))
			}
		}
	}
	return nil
}
