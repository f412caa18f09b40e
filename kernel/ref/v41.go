package ref

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// blockMax computes the largest score of every block of keys.
func blockMax(a kernel.BlockMaxArgs) error {
	if err := host.CheckBlocks(&a); err != nil {
		return err
	}
	for r := range a.Scores.Rows {
		host.BlockMaxRow(&a, r)
	}
	return nil
}

// readTable looks rows up.
func readTable(a kernel.TableArgs) error {
	if err := onlyF32("read table", a.Out); err != nil {
		return err
	}
	if err := host.CheckTable(&a); err != nil {
		return err
	}
	dim := a.Table.Values.Cols
	wide := make([]float64, dim)
	for t := range a.IDs.Rows {
		out := host.RowF32(a.Out, t)
		for i, id := range host.RowI32(a.IDs, t) {
			widen(wide, a.Table.Values, int(id))
			for c, v := range wide {
				out[i*dim+c] = float32(v)
			}
			if a.Table.Values.DType != kernel.E4M3 {
				continue
			}
			for c, s := range host.Bytes(a.Table.Scales.Slice(int(id), int(id)+1)) {
				for j := range kernel.TableScale {
					out[i*dim+c*kernel.TableScale+j] *= num.FromE8M0(s)
				}
			}
		}
	}
	return nil
}

// addEngram adds the value of the n-gram tables, multiplied by a gate, to every residual stream.
func addEngram(a kernel.EngramArgs) error {
	if err := onlyF32("engram", a.X, a.KV); err != nil {
		return err
	}
	n, h := a.Weight.Rows, a.Weight.Cols
	for t := range a.X.Rows {
		x, kv := host.RowF32(a.X, t), host.RowF32(a.KV, t)
		value := kv[n*h:]
		for i := range n {
			stream, key, weight := x[i*h:][:h], kv[i*h:][:h], host.RowF32(a.Weight, i)
			var dot, xx, kk float64
			for c, v := range stream {
				dot += float64(v) * float64(weight[c]) * float64(key[c])
				xx += float64(v) * float64(v)
				kk += float64(key[c]) * float64(key[c])
			}
			eps, size := float64(a.Eps), float64(h)
			dot /= math.Sqrt(xx/size+eps) * math.Sqrt(kk/size+eps) * math.Sqrt(size)
			gate := sigmoid(math.Copysign(math.Sqrt(max(math.Abs(dot), 1e-6)), dot))
			for c, v := range value {
				stream[c] = float32(float64(stream[c]) + gate*float64(v))
			}
		}
	}
	return nil
}
