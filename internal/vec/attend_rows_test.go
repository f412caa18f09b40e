package vec

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

func TestLatentNarrow(t *testing.T) {
	eachLatent(t, func(t *testing.T, a *LatentAttend) {
		r := newRand(11)
		for _, n := range []int{0, 1, 15, 16, 100, 512, LatentRow} {
			src := make([]float32, n)
			for i := range src {
				src[i] = math.Float32frombits(math.Float32bits(float32(r.NormFloat64())) &^ 0xFFFF)
			}
			dst := make([]byte, 2*LatentRow)
			for i := range dst {
				dst[i] = 0xEE
			}
			if !a.Narrow(dst, src) {
				t.Fatalf("%d exact numbers are refused", n)
			}
			for i, want := range src {
				if got := math.Float32frombits(uint32(binary.LittleEndian.Uint16(dst[2*i:])) << 16); got != want {
					t.Fatalf("element %d of %d is %v, want %v", i, n, got, want)
				}
			}
			for _, at := range []int{0, n / 2, n - 1} {
				for _, bad := range []float32{1.0 / 3, math.Float32frombits(0x00010000), -math.SmallestNonzeroFloat32} {
					if n == 0 {
						continue
					}
					was := src[at]
					src[at] = bad
					if a.Narrow(dst, src) {
						t.Fatalf("%v at %d of %d: not detected", bad, at, n)
					}
					src[at] = was
				}
			}
		}
	})
}

func TestLatentEntry(t *testing.T) {
	eachLatent(t, func(t *testing.T, a *LatentAttend) {
		r := newRand(12)
		data, scales, dst := make([]byte, EntryData), make([]byte, EntryScales), make([]byte, 2*LatentDim)
		fill := func() (want [LatentDim]float64) {
			for i := range 448 {
				data[i] = numbersE4M3(r, 1)[0]
				if r.IntN(3) == 0 {
					data[i] &= 0x87 // only zeros and subnormals
				}
			}
			for g := range scales {
				scales[g] = byte(100 + r.IntN(50))
			}
			scales[0], scales[6] = 10, 245
			for i := range 448 {
				want[i] = math.Ldexp(e4m3Value(int(data[i])), int(scales[i/64])-127)
			}
			for i := range 64 {
				want[448+i] = putHalf(r, data[448+2*i:])
			}
			return want
		}
		want := fill()
		for i := range dst {
			dst[i] = 0xEE
		}
		if !a.Entry(dst, data, scales) {
			t.Fatal("refused")
		}
		for i, w := range want {
			if got := float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(dst[2*i:])) << 16)); got != w {
				t.Fatalf("element %d is %v, want %v", i, got, w)
			}
		}
		for name, damage := range map[string]func(){
			"NaN":             func() { data[447] = 0x7F },
			"the NaN scale":   func() { scales[3] = 255 },
			"the least scale": func() { scales[5] = 0 },
		} {
			fill()
			damage()
			if a.Entry(dst, data, scales) {
				t.Errorf("%s: not detected", name)
			}
		}
	})
}

// Rows of 512 elements give the same result as rows of 576 elements that end in zeros, with any distance between rows.
// They are read only up to their last byte.
func TestLatentAttendShortRows(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		long, short := newAttention(tier, LatentRow), newAttention(tier, LatentDim)
		if long == nil {
			return
		}
		const heads, count = 20, 200
		r := newRand(41)
		memory, _ := latentRows(r, count, RowBF16)
		cut, q := make([]byte, 0, 2*LatentDim*count), normals(r, heads*LatentRow)
		for i := range count {
			row := memory[2*LatentRow*i:][:2*LatentRow]
			clear(row[2*LatentDim:])
			cut = append(cut, row[:2*LatentDim]...)
		}
		var qCut []float32
		for h := range heads {
			qCut = append(qCut, q[h*LatentRow:][:LatentDim]...)
		}
		long.Query(0, q, heads, 0.02, RowBF16)
		short.Query(0, qCut, heads, 0.02, RowBF16)
		result := func(a latentAttention, memory []byte, list []int, size int) []float32 {
			places := make([]int, len(list))
			for i, row := range list {
				places[i] = row * size
			}
			if !a.Attend(0, memory, places, nil, RowBF16) {
				t.Fatal("refused")
			}
			all := make([]float32, heads*(LatentDim+2))
			a.Result(all[2*heads:], all[:heads], all[heads:2*heads])
			return all
		}
		for _, near := range []bool{true, false} {
			list := make([]int, count)
			for i := range list {
				if list[i] = i; !near {
					list[i] = (i*7 + 3) % count
				}
			}
			if got, want := result(short, cut, list, 2*LatentDim),
				result(long, memory, list, 2*LatentRow); !slices.Equal(got, want) {
				t.Errorf("near %v: short rows differ", near)
			}
		}
	})
}

func TestLatentHolds(t *testing.T) {
	eachLatent(t, func(t *testing.T, a *LatentAttend) {
		const count = 700
		r := newRand(43)
		memory := make([]byte, 2*LatentDim*count)
		for i := 0; i < len(memory); i += 2 {
			putHalf(r, memory[i:])
		}
		places := make([]int, count)
		for i := range places {
			places[i] = 2 * LatentDim * (i * 3 % count)
		}
		binary.LittleEndian.PutUint16(memory, 0x8000) // -0 in bf16
		if !a.Holds(memory, places) || !a.Holds(memory, nil) {
			t.Fatal("plain numbers are refused")
		}
		for _, at := range []int{0, 511, 512 * 3, len(memory)/2 - 1} {
			was := binary.LittleEndian.Uint16(memory[2*at:])
			for _, bad := range []uint16{1, 0x7F, 0x8040} {
				binary.LittleEndian.PutUint16(memory[2*at:], bad)
				if a.Holds(memory, places) {
					t.Errorf("%#x at %d: not detected", bad, at)
				}
			}
			binary.LittleEndian.PutUint16(memory[2*at:], was)
		}
	})
}
