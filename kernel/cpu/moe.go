package cpu

import (
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Route chooses experts. It is a handful of comparisons per token, so it runs on the caller.
func (d *Device) Route(a kernel.RouteArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	experts := a.Logits.Cols
	s := &d.scratch[0]
	buf := grow(&s.tile, 2*experts+a.Groups)
	scores, biased, rank := buf[:experts], buf[experts:2*experts], buf[2*experts:]
	bias := host.RowF32(a.Bias, 0)
	for t := range a.Logits.Rows {
		for e, l := range host.RowF32(a.Logits, t) {
			scores[e] = float32(1 / (1 + math.Exp(-float64(l))))
			biased[e] = scores[e] + bias[e]
		}
		if a.KeepGroups < a.Groups {
			keepGroups(biased, rank, a.KeepGroups)
		}
		ids, weights := host.RowI32(a.IDs, t), host.RowF32(a.Weights, t)
		sum := float32(0)
		for j := range ids {
			e := largest(biased)
			ids[j] = int32(e)
			biased[e] = float32(math.Inf(-1))
			sum += scores[e]
		}
		for j, e := range ids {
			weights[j] = scores[e] * a.Scale
			if a.Normalize {
				weights[j] = scores[e] / (sum + 1e-20) * a.Scale
			}
		}
	}
	return nil
}

// keepGroups sets the experts of every group but the keep best to minus infinity.
func keepGroups(biased, rank []float32, keep int) {
	never := float32(math.Inf(-1))
	size := len(biased) / len(rank)
	for g := range rank {
		first, second := never, never
		for _, b := range biased[g*size:][:size] {
			first, second = max(first, b), max(second, min(first, b))
		}
		if size == 1 {
			second = 0
		}
		rank[g] = first + second
	}
	for range len(rank) - keep {
		// The worst of the groups still in; of equals the last, so that the lower index stays.
		worst := -1
		for g, v := range rank {
			if v == v && !math.IsInf(float64(v), 1) && (worst < 0 || v <= rank[worst]) {
				worst = g
			}
		}
		rank[worst] = float32(math.Inf(1))
		for e := worst * size; e < (worst+1)*size; e++ {
			biased[e] = never
		}
	}
}

// largest is the first index of the largest value.
func largest(v []float32) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}

// expertTokens bounds how many tokens are grouped at once, and with it the memory for their intermediate rows.
const expertTokens = 1024

// expertState is the memory of grouped expert products: tokens sorted by expert, so that each expert's weights are read once.
type expertState struct {
	first []int32   // [experts+1]: where each expert's rows begin
	order []int32   // [rows]: token*k + choice of each sorted row
	place []int32   // [tokens*k]: sorted row of each choice
	x     []float32 // [rows, hidden]: inputs; then outputs
	gate  []float32 // [rows, inner]
	up    []float32 // [rows, inner]
	items []expertItem
	task  task[expertWork]
	part  kernel.ExpertArgs // of the tokens grouped now; workers read it, so it would be allocated each time
}

// expertItem is one band of one expert's matrix.
type expertItem struct{ expert, n0, n1 int }

type expertWork struct {
	*kernel.ExpertArgs
	down bool
}

// Experts runs the chosen experts, grouped by expert, and adds their weighted outputs in the order of each token's choice.
func (d *Device) Experts(a kernel.ExpertArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("experts", a.Out, a.X); err != nil {
		return err
	}
	for e := range a.Gate {
		for _, w := range [3]kernel.Weight{a.Gate[e], a.Up[e], a.Down[e]} {
			if err := readable(w); err != nil {
				return err
			}
		}
	}
	for t := range a.X.Rows {
		for _, e := range host.RowI32(a.IDs, t) {
			if e < 0 || int(e) >= len(a.Gate) {
				return fmt.Errorf("%w: experts: token %d chose expert %d of %d", kernel.ErrArgument, t, e, len(a.Gate))
			}
		}
	}
	for t := 0; t < a.X.Rows; t += expertTokens {
		end := min(t+expertTokens, a.X.Rows)
		part := &d.experts.part
		*part = a
		part.Out, part.X, part.IDs, part.Weights = a.Out.Slice(t, end), a.X.Slice(t, end), a.IDs.Slice(t, end), a.Weights.Slice(t, end)
		if err := d.expertBlock(part); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) expertBlock(a *kernel.ExpertArgs) error {
	st := &d.experts
	st.sort(a)
	hidden, inner := a.X.Cols, a.Gate[0].Out()
	rows := len(st.order)
	x := grow(&st.x, rows*hidden)
	grow(&st.gate, rows*inner)
	grow(&st.up, rows*inner)
	for i, o := range st.order {
		copy(x[i*hidden:][:hidden], host.RowF32(a.X, int(o)/a.IDs.Cols))
	}
	st.cut(inner)
	if err := st.task.run(d, len(st.items), expertWork{a, false}, (*Device).expertBand); err != nil {
		return err
	}
	st.cut(hidden)
	if err := st.task.run(d, len(st.items), expertWork{a, true}, (*Device).expertBand); err != nil {
		return err
	}
	for t := range a.X.Rows {
		out := host.RowF32(a.Out, t)
		for j, weight := range host.RowF32(a.Weights, t) {
			row := int(st.place[t*a.IDs.Cols+j])
			d.tier.Axpy(out, weight, x[row*hidden:][:hidden])
		}
	}
	return nil
}

// sort groups the choices of all tokens by expert, tokens in ascending order within each.
func (st *expertState) sort(a *kernel.ExpertArgs) {
	k := a.IDs.Cols
	st.first = grow(&st.first, len(a.Gate)+1)
	st.order = grow(&st.order, a.X.Rows*k)
	st.place = grow(&st.place, a.X.Rows*k)
	clear(st.first)
	for t := range a.X.Rows {
		for _, e := range host.RowI32(a.IDs, t) {
			st.first[e+1]++
		}
	}
	for e := range a.Gate {
		st.first[e+1] += st.first[e]
	}
	for t := range a.X.Rows {
		for j, e := range host.RowI32(a.IDs, t) {
			row := st.first[e]
			st.first[e]++
			st.order[row] = int32(t*k + j)
			st.place[t*k+j] = row
		}
	}
	// Filling moved every start to its end, which is the next expert's start.
	copy(st.first[1:], st.first[:len(a.Gate)])
	st.first[0] = 0
}

// cut lists the bands of every expert that has rows.
func (st *expertState) cut(out int) {
	st.items = st.items[:0]
	for e := range len(st.first) - 1 {
		if st.first[e] == st.first[e+1] {
			continue
		}
		for n := 0; n < out; n += bandRows {
			st.items = append(st.items, expertItem{e, n, min(n+bandRows, out)})
		}
	}
}

// expertBand computes one band of gate and up with the activation, or one band of down, for all rows of one expert. The inputs of gate and
// up are no longer needed when down writes its outputs over them.
func (d *Device) expertBand(w *expertWork, worker, item int) {
	st := &d.experts
	it := st.items[item]
	r0, rows := int(st.first[it.expert]), int(st.first[it.expert+1]-st.first[it.expert])
	hidden, inner := w.X.Cols, w.Gate[0].Out()
	x := st.x[r0*hidden : (r0+rows)*hidden]
	gate, up := st.gate[r0*inner:(r0+rows)*inner], st.up[r0*inner:(r0+rows)*inner]
	if w.down {
		d.product(worker, product{y: x[it.n0:], ldy: hidden, x: gate, ldx: inner, m: rows}, w.Down[it.expert], it.n0, it.n1)
		return
	}
	d.product(worker, product{y: gate[it.n0:], ldy: inner, x: x, ldx: hidden, m: rows}, w.Gate[it.expert], it.n0, it.n1)
	d.product(worker, product{y: up[it.n0:], ldy: inner, x: x, ldx: hidden, m: rows}, w.Up[it.expert], it.n0, it.n1)
	for r := range rows {
		g := gate[r*inner+it.n0 : r*inner+it.n1]
		u := up[r*inner+it.n0 : r*inner+it.n1]
		if w.Limit > 0 {
			clampGate(g, u, w.Limit)
		}
		d.tier.SiluMul(g, g, u)
	}
}
