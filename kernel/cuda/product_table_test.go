package cuda_test

import (
	"fmt"
	"testing"

	"sparrow/internal/testkit/launches"
	"sparrow/internal/testkit/table"
	"sparrow/kernel/cuda"
)

// The launches of products, with their tensor maps, are those of the golden table: of both types, of one matrix and of
// several, whose rows, columns, strides and distances all differ.
func TestTableOfProducts(t *testing.T) {
	d := cuda.OpenDetached(cuda.H200)
	k, err := d.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, kind := range []cuda.ProductType{cuda.ProductFP8, cuda.ProductBF16} {
		for _, rows := range []int32{1, 17, 300, 4096} {
			for _, batch := range []int32{1, 3} {
				for _, wide := range []bool{false, true} {
					x := cuda.Product{Type: kind, Weight: 1 << 41, WeightScales: 1 << 42, Input: 1 << 43,
						InputScales: 1 << 44, Out: 1 << 45, WeightStride: 1040, WeightBatch: 1 << 20, InputStride: 4096,
						InputBatch: 1056, ScaleStride: 4104, OutStride: 2064, OutBatch: 640, OutF32: wide, Rows: rows,
						Columns: 592, K: 1024, Batch: batch, Whole: 592}
					if x.SumBytes(d) > 0 {
						x.Sums = 1 << 46
					}
					lines = append(lines, fmt.Sprintf("type %v, %d rows, batch %d, float32 %v", kind, rows, batch,
						wide))
					call, err := x.Encode(d)
					if err != nil {
						lines = append(lines, "  refused "+table.Facts(err.Error()))
						continue
					}
					numbers := map[cuda.Ptr]int{}
					d.Watch(func(kernel string, l cuda.Launch, args any) {
						lines = append(lines, fmt.Sprint("  ", kernel, " ", l.Grid, l.Block, l.Shared, l.Cluster,
							launches.Fields(args, numbers)))
					})
					if err := cuda.Multiply(k, s, &call); err != nil {
						t.Error(err)
					}
					d.Watch(nil)
				}
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	table.Check(t, "products.txt", lines)
}
