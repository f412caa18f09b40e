package config

import (
	"fmt"
	"strings"

	"sparrow/weight"
)

// columns returns the format of matrices that are stored by columns: AWQ, GPTQ, or AutoRound, which uses one of these
// two.
func (q *rawQuantization) columns(not refusal) (stored, error) {
	group := weight.Group{Bits: q.Bits, Size: max(q.GroupSize, 0)}
	out := stored{scheme: weight.Scheme{Method: q.Method, Groups: []weight.Group{group}, Symmetric: q.Symmetric,
		PlainZeros: q.Stored == "gptq_v2"}}
	name := strings.ToUpper(q.Method)
	if strings.HasSuffix(q.Method, "auto-round") {
		name = "auto-round"
		switch packing := strings.TrimPrefix(q.Pack, "auto_round:"); packing {
		case "auto_gptq", "gptq":
			out.scheme.Method = "gptq"
		case "auto_awq", "awq":
			out.scheme.Method = "awq"
		default:
			return out, not("packing_format", fmt.Sprintf("%q", q.Pack), fmt.Sprintf("auto-round: %v", group))
		}
	}
	out.format = Format(fmt.Sprintf("%s: %v", name, group))
	switch {
	case q.Bits != 4 && (q.Bits != 8 || out.scheme.Method == "awq"):
		return out, not("bits", fmt.Sprint(q.Bits), string(out.format))
	case out.scheme.Method == "awq" && q.Version != "" && !strings.EqualFold(q.Version, "gemm"):
		return out, not("version", fmt.Sprintf("%q", q.Version), "AWQ in the order of "+q.Version)
	case q.Method == "gptq" && q.Reordered && !q.Static:
		return out, not("desc_act", "true", "GPTQ with reordered columns (desc_act)")
	case q.Stored != "" && q.Stored != "gptq" && q.Stored != "gptq_v2":
		return out, not("checkpoint_format", fmt.Sprintf("%q", q.Stored), "GPTQ in the order of "+q.Stored)
	}
	for pattern := range q.Dynamic {
		if !strings.HasPrefix(pattern, "-:") { // modules that are not quantised, as their tensors show
			return out, not("dynamic", fmt.Sprintf("%q", pattern), "GPTQ with different bits or groups for some "+
				"modules")
		}
	}
	return out, nil
}
