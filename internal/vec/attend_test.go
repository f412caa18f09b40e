package vec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// latentRows generates n random rows in a format: their bytes and their values. Zeros and subnormal codes, which are
// decoded separately, occur in some ranges of 64 elements and not in others.
func latentRows(r *rand.Rand, n int, format RowFormat) (memory []byte, values [][]float64) {
	for range n {
		row := make([]byte, rowBytes[format])
		v := make([]float64, LatentRow)
		any := false
		for i := range v {
			if i%64 == 0 {
				any = r.IntN(8) == 0
			}
			switch {
			case format == RowBF16:
				v[i] = putHalf(r, row[2*i:])
			case format == RowBlock && i >= LatentDim:
				v[i] = putHalf(r, row[528+2*(i-LatentDim):])
			default:
				row[i] = numbersE4M3(r, 1)[0]
				if any && r.IntN(4) == 0 {
					row[i] &= 0x87 // only zeros and subnormals
				} else if row[i]&0x78 == 0 && !any {
					row[i] |= 0x08
				}
				v[i] = e4m3Value(int(row[i]))
			}
		}
		for g := 0; g < 4 && format == RowBlock; g++ {
			scale := math.Ldexp(1, r.IntN(6)-9)
			binary.LittleEndian.PutUint32(row[512+4*g:], math.Float32bits(float32(scale)))
			for i := range 128 {
				v[128*g+i] *= scale
			}
		}
		memory, values = append(memory, row...), append(values, v)
	}
	return memory, values
}

// putHalf writes a random bfloat16 number near zero to b and returns its value.
func putHalf(r *rand.Rand, b []byte) float64 {
	bits := uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
	binary.LittleEndian.PutUint16(b, bits)
	return float64(math.Float32frombits(uint32(bits) << 16))
}

// attended returns the result of LatentAttend computed by its formula in float64.
func attended(q []float32, rows [][]float64, scale float32) (out []float64, top, sum float64) {
	top = math.Inf(-1)
	scores := make([]float64, len(rows))
	for i, row := range rows {
		for c, v := range row {
			scores[i] += float64(q[c]) * v
		}
		scores[i] *= float64(scale)
		top = max(top, scores[i])
	}
	out = make([]float64, LatentDim)
	for i, s := range scores {
		p := math.Exp(s - top)
		sum += p
		for c := range out {
			out[c] += p * rows[i][c]
		}
	}
	return out, top, sum
}

// latentAttention is what LatentAttend and FloatAttend have in common.
type latentAttention interface {
	Query(i int, q []float32, heads int, scale float32, format RowFormat)
	Attend(i int, memory []byte, at, ahead []int, format RowFormat) bool
	Result(out, top, sum []float32)
}

// inFloat is FloatAttend, which takes queries for any format and refuses no row.
type inFloat struct{ *FloatAttend }

func (f inFloat) Query(i int, q []float32, heads int, scale float32, _ RowFormat) {
	f.FloatAttend.Query(i, q, heads, scale)
}

func (f inFloat) Attend(i int, memory []byte, at, ahead []int, format RowFormat) bool {
	f.FloatAttend.Attend(i, memory, at, ahead, format)
	return true
}

// newAttention returns a tier's attention over latent rows, or nil.
func newAttention(tier *Tier, width int) latentAttention {
	if a := NewLatentAttend(tier, width); a != nil {
		return a
	}
	if a := NewFloatAttend(tier, width); a != nil {
		return inFloat{a}
	}
	return nil
}

// eachAttention runs a test under every tier with attention over latent rows.
func eachAttention(t *testing.T, run func(t *testing.T, a latentAttention)) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		if a := newAttention(tier, LatentRow); a != nil {
			run(t, a)
		}
	})
}

// eachLatent runs a test under every tier with attention over latent rows on tiles.
func eachLatent(t *testing.T, run func(t *testing.T, a *LatentAttend)) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		if a := NewLatentAttend(tier, LatentRow); a != nil {
			run(t, a)
		}
	})
}

func TestLatentAttendMatchesTheFormula(t *testing.T) {
	eachAttention(t, func(t *testing.T, a latentAttention) {
		for format := range rowFormats {
			r := newRand(uint64(format))
			memory, values := latentRows(r, 40, format)
			spread := 0.0 // random e4m3 rows are large; keep scores in a range where many rows contribute
			for _, v := range values {
				for _, x := range v {
					spread += x * x / float64(40*LatentRow)
				}
			}
			scale := float32(2 / math.Sqrt(spread*LatentRow))
			for _, heads := range []int{1, 5, 16, 17, 33} {
				q := normals(r, heads*LatentRow)
				a.Query(0, q, heads, scale, format)
				for _, n := range []int{1, 2, 31, 32, 33, 127, 128, 129, 300} {
					places, rows := make([]int, n), make([][]float64, n)
					for i := range n {
						k := r.IntN(40)
						places[i], rows[i] = k*rowBytes[format], values[k]
					}
					if !a.Attend(0, memory, places, nil, format) {
						t.Fatalf("format %d: refused", format)
					}
					out, top, sum := make([]float32, heads*LatentDim), make([]float32, heads), make([]float32, heads)
					a.Result(out, top, sum)
					for h := range heads {
						want, wantTop, wantSum := attended(q[h*LatentRow:][:LatentRow], rows, scale)
						name := fmt.Sprintf("format %d, %d rows, head %d of %d", format, n, h, heads)
						if math.Abs(float64(top[h])-wantTop) > 1e-4 || math.Abs(float64(sum[h])/wantSum-1) > 1e-4 {
							t.Fatalf("%s: top %v, sum %v, want %v, %v", name, top[h], sum[h], wantTop, wantSum)
						}
						for c, w := range want {
							if d := math.Abs(float64(out[h*LatentDim+c])/float64(sum[h]) - w/wantSum); d > 1e-4*
								math.Sqrt(spread) {
								t.Fatalf("%s: column %d is off by %v of %v", name, c, d, w/wantSum)
							}
						}
					}
				}
			}
		}
	})
}

// A head has the same bits with any other heads, and in a second run.
func TestLatentAttendHeadsAreIndependent(t *testing.T) {
	eachAttention(t, func(t *testing.T, a latentAttention) {
		r := newRand(9)
		memory, _ := latentRows(r, 50, RowBlock)
		places := make([]int, 150)
		for i := range places {
			places[i] = r.IntN(50) * rowBytes[RowBlock]
		}
		const heads = 20
		q := normals(r, heads*LatentRow)
		run := func(h0, h1 int) (out, top, sum []float32) {
			out, top, sum = make([]float32, (h1-h0)*LatentDim), make([]float32, h1-h0), make([]float32, h1-h0)
			a.Query(0, q[h0*LatentRow:h1*LatentRow], h1-h0, 0.01, RowBlock)
			if !a.Attend(0, memory, places, nil, RowBlock) {
				t.Fatal("refused")
			}
			a.Result(out, top, sum)
			return out, top, sum
		}
		out, top, sum := run(0, heads)
		again, _, _ := run(0, heads)
		wantSame(t, "again", again, out)
		for h := range heads {
			o, p, s := run(h, h+1)
			wantSame(t, fmt.Sprintf("head %d alone", h), append(append(o, p...), s...),
				append(append(clone(out[h*LatentDim:][:LatentDim]), top[h]), sum[h]))
		}
	})
}

// Consecutive rows in memory give the same bits as the same rows at other addresses.
func TestLatentAttendWhereRowsLie(t *testing.T) {
	eachAttention(t, func(t *testing.T, a latentAttention) {
		r := newRand(13)
		const heads = 3
		q := normals(r, heads*LatentRow)
		for format := range rowFormats {
			a.Query(0, q, heads, 0.05, format)
			size := rowBytes[format]
			near, _ := latentRows(r, 200, format)
			far := make([]byte, 3*len(near))
			for _, n := range []int{31, 32, 33, 64, 100, 200} {
				var got [2][]float32
				for i, step := range []int{1, 3} {
					memory, places := near, make([]int, n)
					if step == 3 {
						memory = far
					}
					for k := range n {
						places[k] = step * k * size
						copy(memory[places[k]:], near[k*size:][:size])
					}
					out := make([]float32, heads*(LatentDim+2))
					if !a.Attend(0, memory, places, nil, format) {
						t.Fatal("refused")
					}
					a.Result(out[2*heads:], out[:heads], out[heads:2*heads])
					got[i] = out
				}
				wantSame(t, fmt.Sprintf("format %d, %d rows", format, n), got[0], got[1])
			}
		}
	})
}

func TestLatentAttendRefusesWhatBFloat16CannotHold(t *testing.T) {
	eachLatent(t, func(t *testing.T, a *LatentAttend) {
		r := newRand(10)
		a.Query(0, normals(r, LatentRow), 1, 1, RowBlock)
		places := make([]int, 70)
		for i := range places {
			places[i] = i * rowBytes[RowBlock]
		}
		for name, damage := range map[string]func(row []byte){
			"a scale between powers of two": func(row []byte) {
				binary.LittleEndian.PutUint32(row[516:], math.Float32bits(3))
			},
			"a scale of zero": func(row []byte) { binary.LittleEndian.PutUint32(row[524:], 0) },
			"a huge scale": func(row []byte) {
				binary.LittleEndian.PutUint32(row[512:], math.Float32bits(0x1p120))
			},
			"a negative scale": func(row []byte) {
				binary.LittleEndian.PutUint32(row[520:], math.Float32bits(-1))
			},
			"NaN in an element": func(row []byte) { row[300] = 0xFF },
		} {
			for _, at := range []int{0, 31, 64, 69} {
				memory, _ := latentRows(r, 70, RowBlock)
				if !a.Attend(0, memory, places, nil, RowBlock) {
					t.Fatalf("%s: refused before", name)
				}
				damage(memory[at*rowBytes[RowBlock]:])
				if a.Attend(0, memory, places, nil, RowBlock) {
					t.Errorf("%s in row %d: not detected", name, at)
				}
			}
		}
	})
}

// Rows without scales may contain NaN, which makes every head NaN.
func TestLatentAttendNaN(t *testing.T) {
	eachAttention(t, func(t *testing.T, a latentAttention) {
		const heads, n = 17, 70
		r := newRand(10)
		a.Query(0, normals(r, heads*LatentRow), heads, 0.01, RowRaw)
		places := make([]int, n)
		for i := range places {
			places[i] = i * rowBytes[RowRaw]
		}
		for _, at := range []int{0, 100, 511, 512, 575} {
			memory, _ := latentRows(r, n, RowRaw)
			memory[69*rowBytes[RowRaw]+at] = 0xFF
			out, top, sum := make([]float32, heads*LatentDim), make([]float32, heads), make([]float32, heads)
			a.Attend(0, memory, places, nil, RowRaw)
			a.Result(out, top, sum)
			for h := range heads {
				if sum[h] == sum[h] || out[h*LatentDim+64] == out[h*LatentDim+64] {
					t.Fatalf("NaN at %d: head %d has the sum %v, out %v", at, h, sum[h], out[h*LatentDim+64])
				}
			}
		}
	})
}

// BenchmarkLatentAttend measures 16 heads over 2048 random rows of 8192, with few codes that are decoded separately.
// Bytes counts the rows.
func BenchmarkLatentAttend(b *testing.B) {
	for _, tier := range Tiers() {
		a := newAttention(tier, LatentRow)
		if a == nil {
			continue
		}
		for format, name := range []string{"1152", "576", "656"} {
			r := newRand(1)
			few, _ := latentRows(r, 64, RowFormat(format))
			for i := range few {
				if i%rowBytes[format] < LatentDim && format != int(RowBF16) && few[i]&0x78 == 0 && r.IntN(500) != 0 {
					few[i] |= 0x30
				}
			}
			var memory []byte
			for range 128 {
				memory = append(memory, few...)
			}
			places := make([]int, 2048)
			for i := range places {
				places[i] = (4*i + r.IntN(4)) * rowBytes[format]
			}
			q := normals(r, 16*LatentRow)
			b.Run(tier.Name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(2048 * rowBytes[format]))
				for b.Loop() {
					a.Query(0, q, 16, 0.01, RowFormat(format))
					for i := 0; i < len(places); i += 512 {
						a.Attend(0, memory, places[i:i+512], nil, RowFormat(format))
					}
				}
			})
		}
	}
}

// Processing several query rows together and prefetching rows do not change any bit.
func TestLatentAttendTakesTurns(t *testing.T) {
	eachAttention(t, func(t *testing.T, a latentAttention) {
		const heads, queries = 17, 3
		r := newRand(31)
		for format := range rowFormats {
			memory, _ := latentRows(r, 90, format)
			q, places := normals(r, queries*heads*LatentRow), make([][]int, queries)
			query := func(i int) []float32 { return q[i*heads*LatentRow:][:heads*LatentRow] }
			for i := range places {
				for range 140 + 100*i {
					places[i] = append(places[i], r.IntN(90)*rowBytes[format])
				}
			}
			result := func(i, held int, ahead []int) []float32 {
				if !a.Attend(held, memory, places[i], ahead, format) {
					t.Fatalf("format %d: refused", format)
				}
				all := make([]float32, heads*(LatentDim+2))
				a.Result(all[2*heads:], all[:heads], all[heads:2*heads])
				return all
			}
			var alone [queries][]float32
			for i := range queries {
				a.Query(0, query(i), heads, 0.01, format)
				alone[i] = result(i, 0, nil)
			}
			for i := range queries {
				a.Query(i, query(i), heads, 0.01, format)
			}
			for _, i := range []int{1, 0, 2, 1} {
				if got := result(i, i, places[(i+1)%queries]); !slices.Equal(got, alone[i]) {
					t.Errorf("format %d: query row %d is not what it is alone", format, i)
				}
			}
		}
	})
}

// LatentAttend agrees with the reference if scores grow from block to block, by less and by more than the headroom of
// the weights, or fall.
func TestLatentAttendWhileScoresGrow(t *testing.T) {
	eachAttention(t, func(t *testing.T, a latentAttention) {
		const n = 700
		r := newRand(51)
		q := normals(r, LatentRow)
		length := 0.0
		for _, v := range q {
			length += float64(v) * float64(v)
		}
		for _, step := range []float64{-0.05, 0.01, 0.05, 0.4} { // difference of a row's score to the previous row's
			memory, values, places := make([]byte, n*2*LatentRow), make([][]float64, n), make([]int, n)
			for i := range n {
				values[i], places[i] = make([]float64, LatentRow), i*2*LatentRow
				for c := range LatentRow {
					bits := uint16(math.Float32bits(q[c]*float32(step*float64(i)/length)) >> 16)
					binary.LittleEndian.PutUint16(memory[places[i]+2*c:], bits)
					values[i][c] = float64(math.Float32frombits(uint32(bits) << 16))
				}
			}
			a.Query(0, q, 1, 1, RowBF16)
			if !a.Attend(0, memory, places, nil, RowBF16) {
				t.Fatal("refused")
			}
			out, top, sum := make([]float32, LatentDim), make([]float32, 1), make([]float32, 1)
			a.Result(out, top, sum)
			want, wantTop, wantSum := attended(q, values, 1)
			if math.Abs(float64(top[0])-wantTop) > 1e-4*(1+math.Abs(wantTop)) ||
				math.Abs(float64(sum[0])/wantSum-1) > 2e-3 {
				t.Errorf("steps of %v: top %v, sum %v, want %v, %v", step, top[0], sum[0], wantTop, wantSum)
			}
			for c, w := range want {
				if d := math.Abs(float64(out[c])/float64(sum[0]) - w/wantSum); d > 1e-3*math.Abs(w/wantSum)+1e-6 {
					t.Fatalf("steps of %v: column %d is off by %v of %v", step, c, d, w/wantSum)
				}
			}
		}
	})
}
