package plan

import (
	"fmt"

	"sparrow/internal/cost"
)

// Defaults returns a policy with the defaults of hardware, and those defaults as flags: on an NVIDIA GPU the cache is
// FP8 and prompts read gathered rows, unless other settings are given. A layout that is set explicitly gives the same
// plan as the same layout by default. V4 has only one type of cache, so it has no defaults.
func Defaults(on *Hardware, f Family, p Policy) (Policy, []string) {
	if !on.Arch.CUDA() || f == DeepSeekV4 || f == DeepSeekV41 {
		return p, nil
	}
	var chosen []string
	narrow, wide := FP8Row656, BF16Row1152
	if f.Pooled() {
		narrow, wide = FP8Row528, BF16Row1024
	}
	if p.KV == "" {
		p.KV, p.KVWhy = "fp8", fmt.Sprintf("a GPU's default: a row has %d bytes, a bf16 row %d",
			narrow.BytesPerToken(), wide.BytesPerToken())
		chosen = append(chosen, "--kv "+p.KV)
	}
	if f.Dense() {
		return p, chosen
	}
	if (p.KV == "fp8" || p.KV == narrow.String()) && p.Prefill == "" && p.Decode == "" && !p.Deterministic {
		p.Prefill, p.PrefillWhy = SparseFlat.String(), gatheredReason(on, f)
		chosen = append(chosen, "--prefill "+p.Prefill)
	}
	return p, chosen
}

// gatheredReason quotes the times of a prompt with gathered rows and with rows that are read in place.
func gatheredReason(on *Hardware, f Family) string {
	times, gathered := on.costs(), cost.H200().GPU.Prompt
	inPlace, with := times.Decodes[len(times.Decodes)-1], ""
	if f.Pooled() {
		with = fmt.Sprintf(" (measured with the %d-byte rows of DeepSeek-V3.2)", FP8Row656.BytesPerToken())
	}
	return fmt.Sprintf("a GPU's default over FP8 rows: %sattention of a row with %d heads takes %v us over gathered "+
		"rows, %.2f in place%s", times.source(), cost.DecodeHeads, gathered, inPlace.Whole/float64(inPlace.Rows), with)
}
