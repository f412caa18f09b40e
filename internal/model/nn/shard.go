package nn

import (
	"fmt"
	"strings"

	"sparrow/kernel"
)

// With several ranks, each rank loads an equal shard of most weights: rows if the weight's outputs are divided among
// ranks (heads, inner values, tokens), columns if its inputs are. A shard may begin inside a block of scales. On a
// device that runs alone, a shard is the whole weight. Shards are views of the checkpoint's bytes.

// Heads calls load, which loads weights of attention. They are divided into shards by groups of heads, padded with
// zeros if the number of groups is not a multiple of the number of ranks. If ranks divide attention by requests, they
// are loaded whole.
func (l *Loader) Heads(groups int, load func()) {
	all := l.Ranks
	l.Ranks, l.groups = all.Heads(), groups
	load()
	l.Ranks, l.groups = all, 0
}

// Whole calls load, which loads whole weights on every rank.
func (l *Loader) Whole(load func()) {
	all := l.Ranks
	l.Ranks = kernel.Member{}
	load()
	l.Ranks = all
}

// paddedRows returns the number of rows, columns or values that the shards of n rows, columns or values have together:
// more than n if groups of heads are padded.
func paddedRows(l *Loader, n int) int {
	if l.groups == 0 || n%l.groups != 0 {
		return n
	}
	ranks := l.Ranks.Count()
	return (l.groups + ranks - 1) / ranks * ranks * (n / l.groups)
}

// MatrixRows loads a rank's rows of a weight [out, in] that multiplies rows.
func (l *Loader) MatrixRows(name string, out, in int) kernel.Matrix {
	return l.prepare(l.rows(name, out, in), kernel.Projected)
}

// MatrixColumns loads a rank's columns of a weight [out, in]: its product is a part of a sum over ranks.
func (l *Loader) MatrixColumns(name string, out, in int) kernel.Matrix {
	w := l.Weight(name, out, in)
	return l.prepare(l.cut(name, "columns", w, in, kernel.Weight.PaddedColumns), kernel.Projected)
}

// LatentRows loads a rank's rows of the up-projection [out, in] of latent rows.
func (l *Loader) LatentRows(name string, out, in int) kernel.Matrix {
	return l.prepare(l.rows(name, out, in), kernel.Latent)
}

// Table loads a rank's rows of a matrix [rows, cols] whose rows are looked up by index.
func (l *Loader) Table(name string, rows, cols int) kernel.Matrix {
	return l.table(name, rows, cols, kernel.LookedUp)
}

// TiedTable loads a rank's rows of a table that is also a matrix for products.
func (l *Loader) TiedTable(name string, rows, cols int) kernel.Matrix {
	return l.table(name, rows, cols, kernel.Tied)
}

// VectorShard loads a rank's values of a vector of n values, converted to float32.
func (l *Loader) VectorShard(name string, n int) kernel.Tensor {
	t, ok := l.vector(name, n)
	if !ok {
		return kernel.Tensor{}
	}
	all := paddedRows(l, n)
	if all%l.Ranks.Count() != 0 {
		l.addProblem("%s has %d values, which %d ranks cannot share; %s", name, n, l.Ranks.Count(),
			supported(n, func(k int) bool { return n%k == 0 }))
		return kernel.Tensor{}
	}
	values := append(readValues(l, t, n), make([]float32, all-n)...)
	first, last := l.Ranks.Share(all)
	return floatTensor(l, values[first:last], 1, last-first)
}

func (l *Loader) rows(name string, out, in int) kernel.Weight {
	return l.cut(name, "rows", l.Weight(name, out, in), out, kernel.Weight.PaddedRows)
}

// cut returns a rank's shard of n rows or columns of a weight, including padding.
func (l *Loader) cut(name, what string, w kernel.Weight, n int,
	of func(w kernel.Weight, from, to int) (kernel.Weight, error)) kernel.Weight {
	ranks := l.Ranks.Count()
	if ranks == 1 || !w.Data.Given() {
		return w
	}
	divides := func(k int) bool {
		if n%k != 0 {
			return false
		}
		for r := range k {
			if _, err := of(w, r*n/k, (r+1)*n/k); err != nil {
				return false
			}
		}
		return true
	}
	if all := paddedRows(l, n); all != n || divides(ranks) {
		first, last := l.Ranks.Share(all)
		if out, err := of(w, first, last); err == nil {
			return out
		}
	}
	blocks := ""
	if w.Scale.Given() {
		blocks = fmt.Sprintf(" of blocks of %d x %d", w.BlockRows, w.BlockCols)
	}
	if _, ok := w.Data.DType.Block(); ok {
		blocks = fmt.Sprintf(" in blocks of %d values of a row", w.Data.DType.Values())
	}
	l.addProblem("%s has %d %s%s, which %d ranks cannot share; %s", name, n, what, blocks, ranks,
		supported(n, divides))
	return kernel.Weight{}
}

// supported lists the numbers of ranks among which n parts can be divided, for messages.
func supported(n int, divides func(k int) bool) string {
	var list []string
	for k := 1; k <= min(n, 64); k++ {
		if divides(k) {
			list = append(list, fmt.Sprint(k))
		}
	}
	return "use a number of ranks from " + strings.Join(list, ", ")
}
