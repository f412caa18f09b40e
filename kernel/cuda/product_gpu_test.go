package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/internal/num"
)

// productCase holds a product and its operands on the host, with scales already applied.
type productCase struct {
	x             Product
	input, weight []float32 // [batch, rows, k], [batch, columns, k]
}

// gap is the number of elements between rows, which no product may read or write.
const gap = 16

// newProductCase returns a product with random operands. There are gaps of NaN between the rows of inputs and weights.
func newProductCase(r *rig, rng *rand.Rand, t ProductType, rows, columns, k, batch int) *productCase {
	c := &productCase{}
	stride := k + gap
	blocks := (k + 127) / 128
	scaleStride := (rows + 3) / 4 * 4
	bands := (columns + 127) / 128
	inputScales, weightScales := make([]float32, batch*blocks*scaleStride), make([]float32, batch*bands*blocks)
	for i := range inputScales {
		inputScales[i] = float32(0.001 * math.Exp(rng.NormFloat64()))
	}
	for i := range weightScales {
		weightScales[i] = float32(0.001 * math.Exp(rng.NormFloat64()))
	}
	// operand generates a random tensor [batch, n, k] and returns its bytes, and its values times a scale.
	operand := func(n int, scale func(of, row, column int) float32) ([]byte, []float32) {
		values := make([]float32, batch*n*k)
		var raw []byte
		if t == ProductFP8 {
			raw = make([]byte, batch*n*stride)
			for i := range raw {
				raw[i] = 0x7F // NaN
			}
			for i, b := range codes(rng, batch*n*k) {
				raw[i/k*stride+i%k] = b
				values[i] = num.FromE4M3(b) * scale(i/k/n, i/k%n, i%k)
			}
			return raw, values
		}
		raw = make([]byte, batch*n*stride*2)
		for i := range raw {
			raw[i] = 0xFF // NaN
		}
		for i := range values {
			b := num.BF16(float32(rng.NormFloat64()))
			values[i] = num.FromBF16(b)
			binary.LittleEndian.PutUint16(raw[(i/k*stride+i%k)*2:], b)
		}
		return raw, values
	}
	var in, w []byte
	in, c.input = operand(rows, func(of, row, column int) float32 {
		return inputScales[(of*blocks+column/128)*scaleStride+row]
	})
	w, c.weight = operand(columns, func(of, row, column int) float32 {
		return weightScales[(of*bands+row/128)*blocks+column/128]
	})
	c.x = Product{
		Type: t, Weight: upload(r, w), WeightScales: upload(r, weightScales), Input: upload(r, in),
		InputScales:  upload(r, inputScales),
		WeightStride: int64(stride), InputStride: int64(stride), ScaleStride: int64(scaleStride),
		OutStride:   int64(columns + gap),
		WeightBatch: int64(columns * stride), InputBatch: int64(rows * stride), OutBatch: int64(rows * (columns + gap)),
		Rows: int32(rows), Columns: int32(columns), K: int32(k), Batch: int32(batch),
	}
	return c
}

// outBytes returns the size of the result in bytes.
func (x *Product) outBytes() int64 {
	size := int64(2)
	if x.OutF32 {
		size = 4
	}
	return int64(x.Rows) * int64(x.Batch) * x.OutStride * size
}

// run launches rows [from, to) of the case into poisoned memory. A case with a batch must run all rows.
func (c *productCase) run(r *rig, from, to int, f32 bool) []byte {
	r.t.Helper()
	x := c.x
	size, _, _ := x.Type.element()
	x.Input, x.Rows, x.OutF32 = x.Input.Add(int64(from)*x.InputStride*size), int32(to-from), f32
	if x.Type == ProductFP8 {
		x.InputScales = c.scalesFrom(r, from)
	}
	x.Out = r.poisoned(x.outBytes())
	if n := x.SumBytes(r.d); n > 0 && from%2 == 0 { // some runs have memory for SumBytes and some have none
		x.Sums = r.poisoned(n)
	}
	call, err := x.Encode(r.d)
	check(r.t, err)
	check(r.t, Multiply(r.k, r.s, &call))
	return r.download(x.Out, x.outBytes())
}

// scalesFrom returns a copy of the input's scales that begins with row from; the address of the copy is a multiple of
// 16.
func (c *productCase) scalesFrom(r *rig, from int) Ptr {
	if from%4 == 0 {
		return c.x.InputScales.Add(int64(from) * 4)
	}
	n := int64(c.x.Batch)*((int64(c.x.K)+127)/128)*c.x.ScaleStride*4 - int64(from)*4
	p := r.alloc(n)
	check(r.t, r.s.CopyOnDevice(p, c.x.InputScales.Add(int64(from)*4), n))
	return p
}

// check compares all elements of small results, and some elements of large ones, with sums in float64. Rounded results
// must equal the float32 results after rounding.
func (c *productCase) check(t *testing.T, name string, rng *rand.Rand, rounded, exact []byte) {
	t.Helper()
	rows, columns, k, batch := int(c.x.Rows), int(c.x.Columns), int(c.x.K), int(c.x.Batch)
	stride := int(c.x.OutStride)
	limit := 2e-6
	if c.x.Type == ProductFP8 {
		limit = 5e-4 // the tensor cores keep 14 bits
	}
	worst := 0.0
	element := func(b, row, column int) bool {
		x, w := c.input[(b*rows+row)*k:][:k], c.weight[(b*columns+column)*k:][:k]
		var sum, size float64
		for i := range x {
			p := float64(x[i]) * float64(w[i])
			sum += p
			size += math.Abs(p)
		}
		at := (b*rows+row)*stride + column
		got := float64(f32(exact, at))
		worst = max(worst, math.Abs(got-sum)/size)
		if !(math.Abs(got-sum) <= limit*size) {
			t.Errorf("%s: row %d column %d of %d is %g, want %g: difference %.2g of the sum of magnitudes, want at "+
				"most %g", name, row, column, b, got, sum, math.Abs(got-sum)/size, limit)
			return false
		}
		return true
	}
	if rows*columns*batch*k <= 1<<22 {
		for i := range rows * columns * batch {
			if !element(i/(rows*columns), i/columns%rows, i%columns) {
				return
			}
		}
	} else {
		for range 1500 {
			if !element(rng.IntN(batch), rng.IntN(rows), rng.IntN(columns)) {
				return
			}
		}
	}
	t.Logf("%s: the largest difference is %.2g of the sum of magnitudes", name, worst)
	for row := range rows * batch {
		for column := range stride {
			at := row*stride + column
			bits, half := binary.LittleEndian.Uint32(exact[4*at:]), binary.LittleEndian.Uint16(rounded[2*at:])
			if column >= columns {
				if bits != 0xABABABAB || half != 0xABAB {
					t.Errorf("%s: row %d: the gap after column %d was written: %#x %#x", name, row, columns-1, bits,
						half)
					return
				}
			} else if num.BF16(math.Float32frombits(bits)) != half {
				t.Errorf("%s: row %d column %d in bf16 is %#04x, in float32 %g", name, row, column, half,
					math.Float32frombits(bits))
				return
			}
		}
	}
}

func TestGPUProductsEqualTheHost(t *testing.T) {
	r := onGPU(t)
	for _, typ := range []ProductType{ProductFP8, ProductBF16} {
		rng := rand.New(rand.NewPCG(41, uint64(typ)))
		for _, s := range [][3]int{
			{1, 16, 16}, {1, 64, 128}, {3, 48, 272}, {7, 128, 1536}, {8, 2112, 7168}, {9, 112, 400}, {17, 256, 7168},
			{33, 336, 2048}, {64, 592, 1040}, {65, 208, 528},
			{100, 2112, 1024}, {128, 4096, 512}, {129, 128, 128}, {130, 176, 160}, {200, 2112, 528}, {257, 400, 1552},
			{700, 1040, 272}, {513, 7168, 384}, {64, 17008, 144}, {5, 34000, 160}, {4096, 4096, 1024},
		} {
			if testing.Short() && s[0]*s[1]*s[2] > 1<<22 {
				continue
			}
			c := newProductCase(r, rng, typ, s[0], s[1], s[2], 1)
			name := fmt.Sprintf("%v %d x %d x %d", typ, s[0], s[1], s[2])
			c.check(t, name, rng, c.run(r, 0, s[0], false), c.run(r, 0, s[0], true))
		}
	}
	for _, typ := range []ProductType{ProductFP8, ProductBF16} {
		rng := rand.New(rand.NewPCG(42, uint64(typ)))
		for _, s := range [][4]int{{1, 512, 128, 16}, {5, 128, 512, 128}, {64, 512, 128, 7}, {70, 48, 80, 3}, {300, 128,
			512, 5}, {150, 512, 128, 2}, {300, 512, 112, 140}, {257, 112, 512, 130}, {1, 1024, 4096, 8},
			{33, 64, 2064, 2}, {64, 1024, 1040, 8}, {128, 1024, 528, 8}, {129, 1024, 528, 8}} {
			if testing.Short() && s[0]*s[1]*s[2]*s[3] > 1<<22 {
				continue
			}
			c := newProductCase(r, rng, typ, s[0], s[1], s[2], s[3])
			name := fmt.Sprintf("%v %d of %d x %d x %d", typ, s[3], s[0], s[1], s[2])
			c.check(t, name, rng, c.run(r, 0, s[0], false), c.run(r, 0, s[0], true))
		}
	}
}

// The result of a row is bitwise equal alone, in any batch, with any kernel, and in every run.
func TestGPUProductRowsDoNotDependOnTheirBatchOrTheRun(t *testing.T) {
	r := onGPU(t)
	const rows = 300
	for _, typ := range []ProductType{ProductFP8, ProductBF16} {
		rng := rand.New(rand.NewPCG(43, uint64(typ)))
		for _, s := range [][2]int{{2112, 7168}, {4096, 1536}, {256, 7168}, {7168, 2048}, {1040, 2064}, {17040, 528}} {
			c := newProductCase(r, rng, typ, rows, s[0], s[1], 1)
			for _, f32 := range []bool{true, false} {
				all := c.run(r, 0, rows, f32)
				row := len(all) / rows
				for _, part := range [][2]int{{0, 1}, {299, 300}, {131, 133}, {4, 12}, {7, 20}, {64, 95}, {100, 164},
					{12, 77}, {172, 300}, {0, 129}, {5, 299}} {
					some := c.run(r, part[0], part[1], f32)
					sameBytes(t, fmt.Sprintf("%v %v: rows %v, %d parts", typ, s, part, c.x.parts()), some,
						all[part[0]*row:part[1]*row])
				}
				for range repeats / 20 {
					sameBytes(t, fmt.Sprintf("%v %v: again", typ, s), c.run(r, 0, rows, f32), all)
				}
			}
		}
	}
}

// bandsCase returns a case for the product of one matrix [batch * columns, k] in bands. The inputs of the bands are
// adjacent columns of one tensor, and so are the results.
func bandsCase(r *rig, rng *rand.Rand, t ProductType, rows, columns, k, batch int) Product {
	c := newProductCase(r, rng, t, rows, batch*columns, k, 1)
	x := c.x
	in := newProductCase(r, rng, t, rows, 16, batch*k, 1).x
	x.Input, x.InputScales, x.InputStride, x.ScaleStride = in.Input, in.InputScales, in.InputStride, in.ScaleStride
	x.Columns, x.Batch, x.Whole = int32(columns), int32(batch), int32(batch*columns)
	x.WeightBatch, x.InputBatch, x.OutBatch = int64(columns)*x.WeightStride, int64(k), int64(columns)
	x.OutStride, x.OutF32 = int64(batch*columns+gap), true
	return x
}

// Bands of a matrix in one launch are bitwise equal to bands in separate launches, for any number of rows.
func TestGPUBandsInOneLaunchHaveTheBitsOfEach(t *testing.T) {
	r := onGPU(t)
	for _, typ := range []ProductType{ProductFP8, ProductBF16} {
		rng := rand.New(rand.NewPCG(47, uint64(typ)))
		size, _, _ := typ.element()
		for _, s := range [][4]int{{1, 1024, 4096, 8}, {7, 128, 1024, 4}, {40, 256, 4096, 2}, {64, 1024, 4096, 8},
			{70, 128, 2048, 8}, {128, 512, 1024, 4}, {300, 1024, 512, 8}} {
			x := bandsCase(r, rng, typ, s[0], s[1], s[2], s[3])
			run := func(x Product) []byte {
				x.Out = r.poisoned(int64(s[0]) * x.OutStride * 4)
				call, err := x.Encode(r.d)
				check(t, err)
				check(t, Multiply(r.k, r.s, &call))
				return r.download(x.Out, int64(s[0])*x.OutStride*4)
			}
			all := run(x)
			for b := range int64(s[3]) {
				one := x
				one.Batch = 1
				one.Weight, one.Input = x.Weight.Add(b*x.WeightBatch*size), x.Input.Add(b*x.InputBatch*size)
				blocks := int64(x.blocks())
				one.WeightScales = x.WeightScales.Add(4 * b * int64(s[1]/128) * blocks)
				one.InputScales = x.InputScales.Add(4 * b * blocks * x.ScaleStride)
				got := run(one)
				for row := range int64(s[0]) {
					from := row * x.OutStride * 4
					n := int64(4 * s[1])
					sameBytes(t, fmt.Sprintf("%v %v: row %d of band %d", typ, s, row, b), got[from:from+n],
						all[from+b*n:from+(b+1)*n])
				}
			}
		}
	}
}

// everyChoice returns all kernels that can compute a product, with the ways to launch them.
func everyChoice(x *Product) []productChoice {
	var list []productChoice
	add := func(c productChoice) {
		if (x.Rows <= c.inputs || x.parts() > 1) && x.fewBytes(&c, c.stages) <= wholeShared {
			list = append(list, c)
			c.ahead = 1
			list = append(list, c)
		}
	}
	for _, inputs := range []int32{8, 16, 32, 64, 128} {
		for _, room := range []int{thirdShared, halfShared, wholeShared} {
			add(x.few(inputs, room))
		}
	}
	if x.Type == ProductBF16 {
		add(x.wide())
	}
	if x.Type == ProductFP8 && x.parts() == 1 {
		add(x.turned(wholeShared))
	}
	if x.Type == ProductFP8 && x.parts() == narrowParts && x.Rows <= mostFew {
		list = append(list, x.narrow())
	}
	widths := map[ProductType][]int32{ProductFP8: {128, 192}, ProductBF16: {128, 256}}[x.Type]
	if x.parts() > 1 {
		widths = map[ProductType][]int32{ProductFP8: {128, 176}, ProductBF16: {64, 128}}[x.Type]
	}
	if x.Type == ProductFP8 {
		list = append(list, x.tall())
	}
	for _, n := range widths {
		c := x.many(n)
		list = append(list, c)
		if c.across = true; x.Rows <= manyRows && n%64 == 0 {
			list = append(list, c)
		}
	}
	return list
}

func TestGPUEveryProductKernelGivesTheSameBits(t *testing.T) {
	r := onHopper(t)
	for _, typ := range []ProductType{ProductFP8, ProductBF16} {
		rng := rand.New(rand.NewPCG(44, uint64(typ)))
		for _, s := range [][3]int{{37, 2112, 4096}, {150, 4096, 1040}, {5, 256, 7168}, {64, 8208, 528}, {131, 17040,
			272}} {
			c := newProductCase(r, rng, typ, s[0], s[1], s[2], 1)
			want := c.run(r, 0, s[0], true)
			for _, choice := range everyChoice(&c.x) {
				x := c.x
				x.OutF32, x.Out = true, 0
				x.Out = r.poisoned(x.outBytes())
				if choice.sums {
					x.Sums = r.poisoned(int64(r.d.props.SMs) * 128 * 128 * 4)
				}
				call, err := x.encode(r.d, choice)
				check(t, err)
				check(t, Multiply(r.k, r.s, &call))
				sameBytes(t, fmt.Sprintf("%v %v, %d parts: %+v", typ, s, x.parts(), choice), r.download(x.Out,
					x.outBytes()), want)
				if typ == ProductBF16 || choice.sums {
					continue
				}
				factors := make([]float32, x.Columns)
				for i := range factors {
					factors[i] = float32(math.Exp(rng.NormFloat64()))
				}
				x.Factors, x.Out = upload(r, factors), r.poisoned(x.outBytes())
				call, err = x.encode(r.d, choice)
				check(t, err)
				check(t, Multiply(r.k, r.s, &call))
				scaled := slices.Clone(want)
				for row := range int(x.Rows) {
					for i, f := range factors {
						at := scaled[4*(row*int(x.OutStride)+i):]
						v := math.Float32frombits(binary.LittleEndian.Uint32(at))
						binary.LittleEndian.PutUint32(at, math.Float32bits(v*f))
					}
				}
				sameBytes(t, fmt.Sprintf("factors of %v %v, %d parts: %+v", typ, s, x.parts(), choice),
					r.download(x.Out, x.outBytes()), scaled)
			}
		}
	}
}
