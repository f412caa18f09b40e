package expect

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
)

// A gate is clamped from above, the other value on both sides, and only by a positive limit.
func TestGatesAreClamped(t *testing.T) {
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	for _, c := range []struct {
		gate, up float64
		limit    float32
		want     float64
	}{
		{1, 3, 0, silu(1) * 3}, {9, -9, 0, silu(9) * -9}, {1, 3, 7, silu(1) * 3}, {9, 3, 7, silu(7) * 3},
		{-9, 3, 7, silu(-9) * 3}, {1, 9, 7, silu(1) * 7}, {1, -9, 7, silu(1) * -7}, {9, 9, -1, silu(9) * 9},
	} {
		if got := Gated(c.gate, c.up, c.limit); got != c.want {
			t.Errorf("silu(%v) * %v with limit %v is %v, want %v", c.gate, c.up, c.limit, got, c.want)
		}
	}
	if got := Dot([]float64{2, 3, 5}, []float32{7, 11, 13}); got != 14+33+65 {
		t.Errorf("dot product %v", got)
	}
	if a, b, c := GateUpRow(0, false), GateUpRow(127, false), GateUpRow(5, true); a != 0 || b != 127 || c != 133 {
		t.Errorf("rows %d, %d and %d", a, b, c)
	}
}

// Groups of 128 columns, and the shorter last group, have scales of their own.
func TestRowsAreQuantisedInGroups(t *testing.T) {
	v := make([]float32, 300)
	for i := range v {
		v[i] = float32(math.Ldexp(1+float64(i%7)/8, i/128*20))
	}
	for i, got := range Quantised(v, num.ScalePow2) {
		if math.Abs(float64(got-v[i])) > float64(v[i])/16 {
			t.Errorf("column %d: %v, want about %v", i, got, v[i])
		}
	}
}

// Every byte of a packed tile belongs to one byte of one row. The piece p of row r, of 16 bytes, is at place p xor r,
// modulo 8.
func TestPackedTiles(t *testing.T) {
	seen := make([]bool, 256*128)
	for r := range 256 {
		for b := range 128 {
			at := PackedAt(r, b)
			if at < 0 || at >= len(seen) || seen[at] || at/128 != r || at%16 != b%16 {
				t.Fatalf("byte %d of row %d is at %d", b, r, at)
			}
			seen[at] = true
		}
	}
	for _, c := range [][3]int{{0, 17, 17}, {1, 0, 128 + 16}, {1, 16, 128}, {5, 127, 5*128 + 2*16 + 15},
		{9, 0, 9*128 + 16}, {8, 100, 8*128 + 100}} {
		if got := PackedAt(c[0], c[1]); got != c[2] {
			t.Errorf("byte %d of row %d is at %d, want %d", c[1], c[0], got, c[2])
		}
	}
}

// A tile of e2m1 that is written in the order of its words is read as the values that were written.
func TestFoldedTiles(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	var codes [256][128]byte
	var scales [256][4]int
	var tile []byte
	for piece := range 16 {
		rows := codes[16*piece : 16*piece+16]
		for r := range rows {
			for c := range rows[r] {
				rows[r][c] = byte(draw.IntN(16))
			}
		}
		for _, groups := range [][2]int{{0, 1}, {2, 3}} {
			for line := range 8 {
				for quad := range 4 {
					for _, group := range groups {
						for _, row := range []int{line, line + 8} {
							tile = binary.LittleEndian.AppendUint32(tile, foldedWord(rows[row][32*group+4*quad:]))
						}
					}
				}
			}
		}
		for line := range 8 {
			for _, row := range []int{line, line + 8} {
				for group := range 4 {
					e := draw.IntN(16) - 8
					scales[16*piece+row][group] = e
					tile = append(tile, byte(8*(e+8)))
				}
			}
		}
	}
	if len(tile) != FoldedTile {
		t.Fatalf("a tile has %d bytes, want %d", len(tile), FoldedTile)
	}
	for r := range codes {
		for c, code := range codes[r] {
			want := math.Ldexp(float64(num.FromE2M1(code)), scales[r][c/32])
			if got := Folded(tile, r, c); got != want {
				t.Fatalf("row %d, column %d: %v, want %v", r, c, got, want)
			}
		}
	}
}

// foldedWord returns the word of four columns and the four that are 16 columns later.
func foldedWord(v []byte) (word uint32) {
	for i, c := range [...]int{0, 1, 2, 3, 16, 17, 18, 19} {
		word |= uint32(v[c]&7) << (4 * i)
		word |= uint32(v[c]>>3) << [...]int{7, 15, 23, 31, 3, 11, 19, 27}[i]
	}
	return word
}
