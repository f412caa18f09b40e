package v41_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/synth"
	"sparrow/internal/model/v41"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testkit/testflag"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

var long = testflag.Long

// Layers may share entries and selections in every way that a config can describe. For each way, a prompt has the same
// bits whole and in chunks of 1, 3, 64 and 127 tokens, and agrees with the reference.
func TestEveryWayToShare(t *testing.T) {
	for i, c := range []struct {
		name, ratios, kv, index, source, tables string
	}{
		{name: "each for itself", ratios: "2, 2, 1, 2, 2, 1", kv: "0, 1, 2, 3, 4, 5", index: "0, 1, 2, 3, 4, 5",
			source: "5", tables: "0, 5"},
		{name: "one selects for all", ratios: "2, 2, 2, 1, 1, 1", kv: "0, 3", index: "0, 3", source: "3",
			tables: "1, 2"},
		{name: "all select among the same entries", ratios: "0, 1, 1, 1, 1, 1", kv: "1", index: "1, 2, 3, 4, 5",
			source: "1", tables: "4, 5"},
		{name: "candidates end where entries do", ratios: "1, 1, 0, 2, 1, 1", kv: "0, 3, 4", index: "0, 1, 3, 4, 5",
			source: "0", tables: "0, 3"},
		{name: "windows between", ratios: "2, 0, 2, 0, 1, 1", kv: "0, 4", index: "0, 2, 4, 5", source: "4",
			tables: "2, 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if (i == 1 || i == 2) && !*long {
				t.Skip("make long runs it: the checkpoint of other tests has such layers")
			}
			text := strings.NewReplacer(`"compress_ratios": [0, 2, 2, 1, 1, 1]`,
				fmt.Sprintf(`"compress_ratios": [%s]`, c.ratios), `"kv_source_layer_ids": [1, 3]`,
				fmt.Sprintf(`"kv_source_layer_ids": [%s]`, c.kv), `"index_source_layer_ids": [1, 3, 4]`,
				fmt.Sprintf(`"index_source_layer_ids": [%s]`, c.index), `"candidate_source_layer_id": 3`,
				fmt.Sprintf(`"candidate_source_layer_id": %s`, c.source), `"engram_layer_ids": [0, 3]`,
				fmt.Sprintf(`"engram_layer_ids": [%s]`, c.tables)).Replace(testmodel.V41Config)
			made, err := synth.New("sharing", []byte(text), synth.Options{Seed: uint64(i + 20)})
			dir := filepath.Join(t.TempDir(), "sharing")
			if err == nil {
				err = made.Write(t.Context(), dir, nil, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			const n = 150
			b := steps.New(t, steps.Open[*v41.Model](t, dir, "cpu"), plan.Policy{KV: "f32"})
			want := b.Chunks(b.Sequence(i, n), 0)
			bytes := b.Bytes()
			sizes := []int{1, 3, 64, 127}
			if !*long {
				sizes = sizes[1+i%3 : 2+i%3]
			}
			for _, size := range sizes {
				b.Reset()
				b.SameBits(fmt.Sprintf("chunks of %d", size), b.Chunks(b.Sequence(i, n), size), want)
				b.SameBytes(fmt.Sprintf("chunks of %d", size), b.Bytes(), bytes)
			}
			slow := steps.New(t, steps.Open[*v41.Model](t, dir, "ref"), plan.Policy{KV: "f32"})
			near(t, want, slow.Chunks(slow.Sequence(i, n), 0))
		})
	}
}
