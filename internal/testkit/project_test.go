package testkit

import (
	"fmt"

	"sparrow/kernel"
)

// testProject compares matrix products that share their rows with the reference, and checks that every row is bitwise
// equal to that of a separate GEMM.
func testProject(p *pair) {
	kinds := [][]kernel.DType{
		{kernel.BF16}, {kernel.BF16, kernel.BF16, kernel.BF16, kernel.BF16},
		{kernel.E4M3, kernel.BF16, kernel.F32, kernel.E2M1x2}, {kernel.F16, kernel.E4M3},
	}
	sizes := [4]int{512, 577, 64, 1} // numbers of rows of the weights
	for _, s := range [][2]int{{1, 1024}, {4, 320}, {7, 64}, {33, 96}, {131, 64}} {
		for _, types := range kinds {
			rows, k := s[0], s[1]
			x := p.random(rows, k+3).columns(2, k+2) // x is a view with a stride
			var ws []weights
			var outs []both
			for i, t := range types {
				outs = append(outs, p.random(rows, sizes[i]+5).columns(5, sizes[i]+5))
				if t == kernel.E2M1x2 {
					ws = append(ws, p.packed(sizes[i], k))
					continue
				}
				ws = append(ws, p.weight(t, sizes[i], k))
			}
			p.each(func(s side) error {
				a := kernel.ProjectArgs{X: s.of(x)}
				for i := range types {
					a.To = append(a.To, kernel.Projection{Out: s.of(outs[i]), W: s.weight(ws[i])})
				}
				return kernel.Do(s, a)
			})
			for i := range types {
				what := fmt.Sprintf("product %d of %v, %d rows of %d", i, types, rows, k)
				tol := 2e-5
				if types[i] == kernel.E2M1x2 {
					tol = p.packedTolerance(k)
				}
				p.near(what, outs[i], tol)
				p.rowwise(what, outs[i].dev, func(r int) kernel.Tensor {
					one := p.like(outs[i].dev, 1)
					p.must(kernel.Do(p.dev, kernel.MultiplyArgs{Out: one, X: x.dev.Slice(r, r+1), W: ws[i].dev}))
					return one
				})
			}
		}
	}
}
