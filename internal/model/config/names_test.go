package config

import (
	"encoding/json"
	"testing"
)

// Formats of compressed-tensors have the names of their releases, or are described by bits and scales.
func TestNamesOfGroups(t *testing.T) {
	for text, want := range map[string]string{
		`{"num_bits":4,"type":"float","group_size":16}`:                           "NVFP4",
		`{"num_bits":4,"type":"float","group_size":32}`:                           "MXFP4",
		`{"num_bits":4,"type":"float","group_size":64,"strategy":"group"}`:        "FP4 in groups of 64",
		`{"num_bits":8,"type":"float","group_size":16,"strategy":"tensor_group"}`: "FP8 in groups of 16",
		`{"num_bits":4,"type":"int","group_size":16,"strategy":"group"}`:          "int4 in groups of 16",
		`{"num_bits":4,"type":"int","group_size":32,"strategy":"group"}`:          "int4 in groups of 32",
		`{"num_bits":8,"type":"float","strategy":"block","block_structure":[128,64]}`: "FP8 in blocks of " +
			"[128 64]",
		`{"num_bits":8,"type":"float","strategy":"channel"}`: "FP8 with a scale for each channel",
		`{"num_bits":8,"type":"int","strategy":"tensor"}`:    "int8 with a scale for each tensor",
	} {
		var g rawGroup
		if err := json.Unmarshal([]byte(`{"weights":`+text+"}"), &g); err != nil {
			t.Fatal(err)
		}
		if got := g.name(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// The suggested checkpoint is the release of the same model, as far as the configuration shows it.
func TestNearestReleases(t *testing.T) {
	for _, c := range []struct {
		family       Family
		fields, want string
	}{
		{DeepseekV32, `{}`, nearestV32},
		{DeepseekV4, `{"hidden_size":4096}`, nearestV4Flash},
		{DeepseekV4, `{"hidden_size":7168}`, nearestV4Pro},
		{DeepseekV4, `{}`, nearestV4Pro},
		{DeepseekV41, `{"hidden_size":4096}`, nearestV41},
		{GLMMoeDSA, `{"indexer_types":[]}`, nearestGLM52},
		{GLMMoeDSA, `{}`, nearestGLM},
		{DeepseekV3, `{"indexer_types":[]}`, nearestV3},
		{KimiK2, `{}`, nearestKimi},
		{KimiK25, `{}`, nearestKimi},
		{GLM4MoeLite, `{}`, nearestGLMLite},
		{GLM5Next, `{}`, nearestNext},
	} {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.fields), &fields); err != nil {
			t.Fatal(err)
		}
		if got, want := nearestRelease(c.family, fields), "the nearest checkpoint that runs is "+c.want; got != want {
			t.Errorf("%s %s: %s, want %s", c.family, c.fields, got, want)
		}
	}
	names := map[string]bool{}
	for _, n := range []string{nearestV32, nearestV4Flash, nearestV4Pro, nearestV41, nearestGLM52, nearestGLM,
		nearestV3, nearestKimi, nearestGLMLite, nearestNext} {
		if names[n] {
			t.Errorf("%s is named twice", n)
		}
		names[n] = true
	}
}
