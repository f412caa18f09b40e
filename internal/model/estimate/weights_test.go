package estimate

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/synth"
	"sparrow/internal/testkit/testflag"
)

// release reads the small files of a released checkpoint.
func release(t *testing.T, name string) config.Release {
	t.Helper()
	var r struct {
		Config   json.RawMessage `json:"config"`
		ModelOpt json.RawMessage `json:"hf_quant_config"`
	}
	text, err := os.ReadFile("../config/testdata/released/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config.Release{File: name, Config: r.Config, ModelOpt: r.ModelOpt}
}

// If only the config files of a release are present, its sizes follow from its data types, for the CPU and for a GPU.
// Properties that its config files do not state are listed as assumptions. Sizes are in GiB, and in MiB for an expert.
// An expert has 3 x 2048 x 7168 values of 4 bits (4096 instead of 7168 for V4). Kimi adds a 16-bit scale for 32 values,
// NVFP4 an 8-bit scale for 16 values. AWQ and int mixes keep some layers in bf16.
func TestSizesOfReleases(t *testing.T) {
	for name, want := range map[string]struct {
		all, expert float64
		kind        string
		assumed     bool
	}{
		"deepseek-v3.2":                            {642.1, 42.0, "e4m3", false},
		"deepseek-v4-flash":                        {148.7, 12.75, "e2m1", false},
		"deepseek-v4-flash-base":                   {272.4, 24.0, "e4m3", false},
		"glm-5":                                    {1404, 72.0, "bf16", false},
		"kimi-k2.5":                                {553.4, 23.6, "int4", false},
		"nvidia-deepseek-v3.2-nvfp4":               {386.5, 24.6, "nvfp4", false},
		"nvidia-deepseek-v4-flash-nvfp4":           {156.7, 13.5, "nvfp4", false},
		"quanttrio-deepseek-v3.2-exp-awq":          {372.3, 23.9, "int4", false},
		"pastapaul-deepseek-v4-flash-w4a16-fp8":    {142.0, 12.4, "int4", false},
		"hawkbearpig-glm-5.3-int4-int8mix-rtn-g64": {398.1, 19.8, "int4", false},
		"intel-deepseek-v4-flash-w4a16-autoround":  {142.9, 12.5, "int4", true},
	} {
		if !*testflag.Long && (name == "deepseek-v3.2" || name == "nvidia-deepseek-v3.2-nvfp4") {
			continue // other releases have these types, in fewer tensors
		}
		src, assumed, err := synth.Described(name, release(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w := WeightsOf(src)
		all, expert := float64(src.Weights.Bytes())/(1<<30), float64(w.Expert)/(1<<20)
		t.Logf("%s: %.1f GiB, an expert %.2f MiB of %s, %q", name, all, expert, w.Type, assumed)
		if math.Abs(all/want.all-1) > 0.01 || math.Abs(expert/want.expert-1) > 0.01 || w.Type != want.kind ||
			want.assumed != (assumed != "") {
			t.Errorf("%s: %.1f GiB, an expert %.2f MiB of %s, assumed %q; want %+v", name, all, expert, w.Type, assumed,
				want)
		}
		// A GPU stores the same experts, stores some projections twice, and has no copies of the vocabulary matrices.
		e := expertsOf(src.Model)
		gpu := float64(w.Rest+w.Expert*int64(e.count())) / (1 << 30)
		if math.Abs(gpu/all-1) > 0.02 {
			t.Errorf("%s: %.1f GiB on a GPU, %.1f on a CPU", name, gpu, all)
		}
	}
}

// The size of the weights other than experts, with the data types of the family, equals the result of the formulas for
// ranks.
func TestRestIsThatOfTheFormula(t *testing.T) {
	for _, name := range []string{"deepseek-v3.2", "glm-5.2-fp8", "deepseek-v4-flash", "deepseek-v4-pro",
		"glm-5.3-flash"} {
		src, _, err := synth.Described(name, release(t, name))
		if err != nil {
			t.Fatal(err)
		}
		heads := map[string]int{"deepseek-v3.2": 128, "glm-5.2-fp8": 64, "deepseek-v4-flash": 64,
			"deepseek-v4-pro": 128, "glm-5.3-flash": 32}[name]
		if got, want := WeightsOf(src).Rest, restBytes(src.Model, heads, 1); math.Abs(float64(got)/float64(want)-1) >
			0.04 {
			t.Errorf("%s: %d bytes of tensors, the formula has %d", name, got, want)
		}
	}
}
