package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/cuda/image"
)

// someProduct returns a product with addresses that no launch uses.
func someProduct() Product {
	return Product{Weight: somewhere, WeightScales: somewhere, Input: somewhere, InputScales: somewhere,
		Out: somewhere, WeightStride: 7168, InputStride: 7168, ScaleStride: 8,
		OutStride: 2112, Rows: 5, Columns: 2112, K: 7168, Batch: 1}
}

func TestProductArgumentsAreCheckedBeforeMapsAreMade(t *testing.T) {
	d := &Device{props: Properties{SMs: 132}}
	for says, change := range map[string]func(*Product){
		"":             func(*Product) {},
		"rows 0":       func(x *Product) { x.Rows = 0 },
		"batch 0":      func(x *Product) { x.Batch = 0 },
		"columns 2104": func(x *Product) { x.Columns = 2104 },
		"k 100":        func(x *Product) { x.K = 100 },
		"k is 65536, want at " +
			"most": func(x *Product) { x.K, x.WeightStride, x.InputStride = 65536, 65536, 65536 },
		"weight is not given":        func(x *Product) { x.Weight = 0 },
		"weight scales is not given": func(x *Product) { x.WeightScales = 0 },
		"input at 0x8":               func(x *Product) { x.Input = 8 },
		"input scales at 0x100004":   func(x *Product) { x.InputScales = somewhere + 4 },
		"sums are at 0x100008":       func(x *Product) { x.Sums = somewhere + 8 },
		"out at 0x100002":            func(x *Product) { x.Out = somewhere + 2 },
		"weight stride 7152":         func(x *Product) { x.WeightStride = 7152 },
		"input stride 7176":          func(x *Product) { x.InputStride = 7176 },
		"scale stride 4":             func(x *Product) { x.ScaleStride = 4 },
		"out stride 2100":            func(x *Product) { x.OutStride = 2100 },
		"out stride 2116":            func(x *Product) { x.OutStride = 2116 },
		"weight batch 0":             func(x *Product) { x.Batch = 2 },
		"launch fewer rows":          func(x *Product) { x.Rows, x.ScaleStride = 1<<30, 1<<30 },
	} {
		x := someProduct()
		change(&x)
		_, err := x.Encode(d)
		if says == "" {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("correct arguments ended with %v, want to get as far as the driver", err)
			}
		} else if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an argument error that says %q", err, says)
		}
	}
	x := someProduct()
	x.OutStride, x.OutF32 = 2116, true // float32 rows only need a multiple of 4
	if _, err := x.Encode(d); !errors.Is(err, ErrClosed) {
		t.Errorf("float32 rows 2116 apart: %v", err)
	}
}

// The number of parts of a sum depends only on the weight. It determines the order of summation, so changing it changes
// results.
func TestPartsDependOnTheWeightAlone(t *testing.T) {
	for _, c := range []struct {
		typ                       ProductType
		columns, k, batch, expect int32
	}{
		{ProductFP8, 2112, 7168, 1, 4}, {ProductFP8, 24576, 1536, 1, 1}, {ProductFP8, 8192, 1536, 1, 1}, {ProductFP8,
			7168, 16384, 1, 1}, {ProductFP8, 4096, 7168, 1, 2},
		{ProductFP8, 7168, 2048, 1, 1}, {ProductFP8, 36864, 7168, 1, 1}, {ProductFP8, 576, 7168, 1, 8}, {ProductFP8,
			64, 512, 1, 1}, {ProductFP8, 64, 1024, 1, 2},
		{ProductBF16, 256, 7168, 1, 8}, {ProductBF16, 129280, 7168, 1, 1}, {ProductBF16, 512, 128, 128, 1},
		{ProductBF16, 16, 16, 1, 1},
		{ProductFP8, 256, 128 * 33, 1, 4}, // 33 blocks in eight parts would leave the last part empty
	} {
		for _, rows := range []int32{1, 64, 65, 8192} {
			x := Product{Type: c.typ, Rows: rows, Columns: c.columns, K: c.k, Batch: c.batch}
			if got := x.parts(); got != c.expect {
				t.Errorf("%v %d x %d, batch %d, %d rows: %d parts, want %d", c.typ, c.columns, c.k, c.batch, rows,
					got, c.expect)
			}
			each := (x.blocks() + c.expect - 1) / c.expect
			if last := x.blocks() - (c.expect-1)*each; last <= 0 {
				t.Errorf("%v %d x %d: the last part has %d blocks", c.typ, c.columns, c.k, last)
			}
		}
	}
}

// For every number of rows, the choice is a kernel that exists, supports the rows and fits into shared memory.
func TestProductChoicesExistAndFit(t *testing.T) {
	m := loadManifest(t)
	seen := map[string]bool{}
	for _, s := range [][3]int32{
		{2112, 7168, 1}, {24576, 1536, 1}, {8192, 1536, 1}, {7168, 16384, 1}, {4096, 7168, 1}, {7168, 2048, 1},
		{36864, 7168, 1}, {256, 7168, 1}, {129280, 7168, 1}, {512, 128, 128},
		{128, 512, 128}, {16, 16, 1}, {16, mostK, 1}, {34000, mostK, 1}, {2112, mostK, 1},
	} {
		for _, form := range []Product{{Type: ProductFP8}, {Type: ProductBF16}, {Type: ProductFP8, Folded: true}} {
			for _, rows := range []int32{1, 8, 9, 16, 17, 33, 64, 65, 128, 129, 300, 512, 1000, 4096, 8192} {
				if form.Folded && rows > FoldedFew {
					continue // a folded weight is widened to e4m3 first
				}
				x := form
				x.Rows, x.Columns, x.K, x.Batch = rows, s[0], s[1], s[2]
				name := fmt.Sprintf("%v folded %t %v, %d rows", x.Type, x.Folded, s, rows)
				plain := x.choose(132)
				x.Sums = somewhere
				c := x.choose(132)
				seen[c.kernel], seen[plain.kernel] = true, true
				if plain.sums || !c.sums && c != plain {
					t.Errorf("%s: %+v without memory for sums, %+v with it", name, plain, c)
				}
				if _, _, err := m.Find(c.kernel); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if c.few && (rows > c.inputs && x.parts() == 1 || c.stages < 2 || c.ahead < 1 || c.ahead > c.stages ||
					x.fewBytes(&c, c.stages) > wholeShared) {
					t.Errorf("%s: %+v takes %d bytes", name, c, x.fewBytes(&c, c.stages))
				}
			}
		}
	}
	for _, name := range []string{"sparrow_product_fold", "sparrow_product_unfold"} {
		seen[name] = true // this kernel converts a weight and computes no product
	}
	for _, im := range m.Images {
		for _, k := range im.Kernels {
			if strings.HasPrefix(k.Name, "sparrow_product_") && !seen[k.Name] {
				t.Errorf("kernel %s is never chosen", k.Name)
			}
		}
	}
}

func TestProductLaunchesNeedAKernel(t *testing.T) {
	k, s := &Kernels{device: &Device{}}, &Stream{}
	if err := Multiply(k, s, &ProductCall{kernel: "sparrow_product_fp8_few8"}); !errors.Is(err, image.ErrUnknown) {
		t.Errorf("got %v, want to get as far as the kernel", err)
	}
}
