package config

import (
	"slices"
	"strings"
)

// rawLayer is the format of one module in modelopt's list.
type rawLayer struct {
	Algorithm string `json:"quant_algo"`
}

// modeloptFormats maps the supported algorithms of modelopt to names of formats. Other algorithms also change the
// inputs of products (NVFP4_AWQ, NVFP4_SVD, W4A8_AWQ), or are not known.
var modeloptFormats = map[string]string{"NVFP4": "NVFP4", "W4A16_NVFP4": "NVFP4", "FP8": "FP8",
	"FP8_PER_CHANNEL_PER_TOKEN": "FP8 with a scale for each row", "FP8_PB_WO": "FP8 in blocks of 128 x 128",
	"MXFP8": "FP8 in groups of 32"}

// modelopt returns the format that modelopt's fields describe; excluded modules have the format release.
func (q *rawQuantization) modelopt(not refusal, release stored) (stored, error) {
	algorithms := q.algorithms()
	if len(algorithms) == 0 { // nothing is quantised
		return stored{format: FormatBF16}, nil
	}
	var names []string
	for _, a := range algorithms {
		name, ok := modeloptFormats[a]
		if !ok {
			field := "quant_algo"
			if q.Algorithm == "" || strings.EqualFold(q.Algorithm, "MIXED_PRECISION") {
				field = "quantized_layers"
			}
			return stored{}, not(field, `"`+strings.Join(algorithms, `", "`)+`"`, "modelopt's "+strings.Join(algorithms,
				" and "))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	release.format = joinFormats("modelopt: "+strings.Join(slices.Compact(names), " and "), release.format)
	if slices.Contains(algorithms, "MXFP8") {
		release.losses = append(release.losses, fp8Slow)
	}
	if !slices.Contains(names, "NVFP4") {
		release.losses = append(release.losses, fp8OnGPUs)
	}
	return release, nil
}

// joinFormats returns the name of the format of some modules, with the format of all other modules if it is not empty.
func joinFormats(of string, rest Format) Format {
	if rest == "" {
		return Format(of)
	}
	return Format(of + "; the rest " + string(rest))
}
