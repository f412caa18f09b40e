package llamacpp

import (
	"fmt"
	"strings"

	"sparrow/internal/block"
	"sparrow/weight/gguf"
)

// Mix is a set of formats for the tensors of a model. It has the name that llama.cpp's tools use.
type Mix string

// Mixes that Write supports.
const (
	MixF32  Mix = "f32"
	MixBF16 Mix = "bf16"
	MixQ8_0 Mix = "q8_0"
	MixQ4_0 Mix = "q4_0"
	MixQ4KM Mix = "q4_k_m"
	MixQ5KM Mix = "q5_k_m"

	// Fewer bits are for experts only; other matrices are those of q4_k_m. In the mixes of two bits, down-projections
	// have Q2_K.
	MixIQ4XS  Mix = "iq4_xs"
	MixQ3K    Mix = "q3_k"
	MixIQ3S   Mix = "iq3_s"
	MixIQ3XXS Mix = "iq3_xxs"
	MixQ2K    Mix = "q2_k"
	MixIQ2S   Mix = "iq2_s"
	MixIQ2XS  Mix = "iq2_xs"
	MixIQ2XXS Mix = "iq2_xxs"
)

// Mixes lists all mixes, for help texts.
func Mixes() []Mix {
	return []Mix{MixQ4KM, MixQ5KM, MixIQ4XS, MixQ3K, MixIQ3S, MixIQ3XXS, MixQ2K, MixIQ2S, MixIQ2XS, MixIQ2XXS, MixQ8_0,
		MixQ4_0, MixBF16, MixF32}
}

// expertTypes holds the formats of experts, of gate and up and of down, in mixes whose other matrices have more bits.
var expertTypes = map[Mix][2]block.Format{MixIQ4XS: {block.IQ4_XS, block.IQ4_XS}, MixQ3K: {block.Q3_K, block.Q3_K},
	MixIQ3S: {block.IQ3_S, block.IQ3_S}, MixIQ3XXS: {block.IQ3_XXS, block.IQ3_XXS}, MixQ2K: {block.Q2_K, block.Q2_K},
	MixIQ2S: {block.IQ2_S, block.Q2_K}, MixIQ2XS: {block.IQ2_XS, block.Q2_K}, MixIQ2XXS: {block.IQ2_XXS, block.Q2_K}}

// ParseMix finds a mix by name.
func ParseMix(name string) (Mix, error) {
	var names []string
	for _, m := range Mixes() {
		if strings.EqualFold(name, string(m)) {
			return m, nil
		}
		names = append(names, string(m))
	}
	return "", fmt.Errorf("type %q is unknown; want one of %s", name, strings.Join(names, ", "))
}

// fileType returns the number of a mix in GGUF metadata (general.file_type).
func (m Mix) fileType() uint32 {
	return map[Mix]uint32{MixF32: 0, MixQ4_0: 2, MixQ8_0: 7, MixQ2K: 10, MixQ3K: 12, MixQ4KM: 15, MixQ5KM: 17,
		MixIQ2XXS: 19, MixIQ2XS: 20, MixIQ3XXS: 23, MixIQ3S: 26, MixIQ2S: 28, MixIQ4XS: 30, MixBF16: 32}[m]
}

// NeedsImportance reports whether experts have so few bits that the file should be made with an importance matrix.
func (m Mix) NeedsImportance() bool {
	return m == MixIQ3XXS || m == MixIQ2S || m == MixIQ2XS || m == MixIQ2XXS
}

// UsesImportance reports whether an importance matrix changes the file.
func (m Mix) UsesImportance() bool { return m.packed() && m != MixQ8_0 }

// packed reports whether the mix stores matrices in blocks: FP4 experts are then stored as FP4 without loss.
func (m Mix) packed() bool { return m != MixF32 && m != MixBF16 }

// typeOf returns the type of a matrix with rows of cols values. Vectors, the router, and the F32 tensors of DeepSeek-V4
// stay F32: they are small, and rounding errors of the router would change the choice of experts.
func (m Mix) typeOf(name string, layer, layers, cols int) gguf.Type {
	switch {
	case m == MixF32 || staysF32(name):
		return gguf.F32
	case m == MixBF16:
		return gguf.BF16
	}
	want := block.Q8_0
	switch {
	case m == MixQ8_0 || strings.HasSuffix(name, "indexer.attn_k.weight"):
	case name == "output.weight":
		want = block.Q6_K
	case m == MixQ4_0:
		want = block.Q4_0
	case strings.Contains(name, "_exps.") && expertTypes[m][0] != 0:
		if want = expertTypes[m][0]; strings.Contains(name, "ffn_down") {
			if want = expertTypes[m][1]; moreBits(layer, layers) {
				want = block.Q4_K
			}
		}
	case strings.Contains(name, "ffn_down") && moreBits(layer, layers):
		want = block.Q6_K
	case m == MixQ5KM:
		want = block.Q5_K
	default:
		want = block.Q4_K
	}
	return gguf.TypeOf(narrower(want, cols))
}

func staysF32(name string) bool {
	for _, suffix := range []string{"ffn_gate_inp.weight", "hc_fn.weight", "hc_attn_fn.weight", "hc_ffn_fn.weight",
		"_ape.weight"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// moreBits reports whether the down-projections of a layer have six bits: in the first and the last eighth of the
// layers, and in every third layer between. Errors of these matrices affect the residual rows directly.
func moreBits(layer, layers int) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}

// narrower returns f if its blocks divide a row, otherwise a format with blocks of 32 values and at least as many bits.
func narrower(f block.Format, cols int) block.Format {
	if cols%f.Values() == 0 {
		return f
	}
	switch f {
	case block.IQ4_XS:
		return block.IQ4_NL
	case block.Q2_K, block.Q3_K, block.IQ2_XXS, block.IQ2_XS, block.IQ2_S, block.IQ3_XXS, block.IQ3_S:
		return block.Q4_0
	case block.Q4_K:
		return block.Q5_0
	}
	return block.Q8_0
}
