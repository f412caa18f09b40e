package block

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"testing"
)

// The expected hashes were computed from the float32 values to which llama.cpp's Python package gguf 0.19 decodes the
// same 512 blocks of random bytes. Exponents of the float16 scales stay below infinity; MXFP4 has every finite scale.
// The golden blocks of package gguf cover all formats.
func TestDecodeEqualsGGML(t *testing.T) {
	tests := []struct {
		format Format
		halves []int // byte offsets of float16 scales in a block
		hash   string
	}{
		{Q4_0, []int{0}, "296f269a320b01ee"},
		{Q4_1, []int{0, 2}, "092ccbf816dfa4b4"},
		{Q5_0, []int{0}, "601fb199549294b4"},
		{Q5_1, []int{0, 2}, "e06a4321c3062e46"},
		{Q8_0, []int{0}, "d69c20db9b6ba7cd"},
		{Q2_K, []int{80, 82}, "5053b38b3c7685ff"},
		{Q3_K, []int{108}, "db40bdbe6b28bac7"},
		{Q4_K, []int{0, 2}, "fe65dbc79e503199"},
		{Q5_K, []int{0, 2}, "a1e36aa48635dbdc"},
		{Q6_K, []int{208}, "9b4ab982f0aa489d"},
		{IQ4_NL, []int{0}, "df40a3b79e428113"},
		{IQ4_XS, []int{0}, "d7e541ac0577632a"},
		{MXFP4, nil, "0b92332499125861"},
	}
	const blocks = 512
	for i, test := range tests {
		size := test.format.Bytes()
		data := randomBytes(uint64(i+1), blocks*size)
		for b := range blocks {
			for _, at := range test.halves {
				data[b*size+at+1] &= 0xbf
			}
			if test.format == MXFP4 {
				data[b*size] = byte(b % 255)
			}
		}
		values := make([]float32, blocks*test.format.Values())
		test.format.Decode(values, data)
		hash := sha256.New()
		for _, v := range values {
			_ = binary.Write(hash, binary.LittleEndian, math.Float32bits(v))
		}
		if got := hex.EncodeToString(hash.Sum(nil)[:8]); got != test.hash {
			t.Errorf("%v: hash %s, want %s; first values %v", test.format, got, test.hash, values[:4])
		}
	}
}

// randomBytes returns the top bytes of a linear congruential generator, which other languages can repeat.
func randomBytes(state uint64, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		state = state*6364136223846793005 + 1442695040888963407
		data[i] = byte(state >> 56)
	}
	return data
}

// A block is decoded to the same values alone and in a row of blocks.
func TestDecodeIsByBlock(t *testing.T) {
	for _, f := range Formats() {
		data := randomBytes(99, 3*f.Bytes())
		all, one := make([]float32, 3*f.Values()), make([]float32, f.Values())
		f.Decode(all, data)
		f.Decode(one, data[f.Bytes():])
		bits := func(v []float32) (list []uint32) {
			for _, x := range v {
				list = append(list, math.Float32bits(x))
			}
			return list
		}
		if !slices.Equal(bits(one), bits(all[f.Values():2*f.Values()])) {
			t.Errorf("%v: the second block differs from the same block alone", f)
		}
	}
}
