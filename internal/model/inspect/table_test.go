package inspect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/estimate"
	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/model/synth"
	"sparrow/internal/testkit/table"
)

// The descriptions of models of every family equal those in the golden table: as JSON, as text with and without
// weights, whether they fit on machines without a GPU, and what placements of experts read of them.
func TestTableOfDescriptions(t *testing.T) {
	var lines []string
	for _, name := range []string{"v32-tiny", "glm-tiny", "v3-tiny", "v4-tiny", "v4-dspark-tiny", "v41-tiny",
		"glm53f-tiny", "deepseek-v4-flash", "glm-5.3-flash"} {
		text, err := synth.PresetConfig(name)
		if err != nil {
			t.Fatal(err)
		}
		src, _, err := synth.Described(name, config.Release{File: "config.json", Config: text})
		if err != nil {
			t.Fatal(err)
		}
		s := inspect.Of(src, []float64{0.001, 1, 100, 700})
		s.Slow = nil // these fields depend on the machine
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, name, "  "+string(data))
		var out bytes.Buffer
		for _, s.NoWeights = range []bool{false, true} {
			if err := s.Print(&out); err != nil {
				t.Fatal(err)
			}
		}
		s.FileBytes, s.NoWeights, s.Assumed = s.TotalBytes/2, false, "bytes are guessed"
		s.Losses = append(s.Losses, "a", "GPUs: b", "c on GPUs: d")
		if err := s.Print(&out); err != nil {
			t.Fatal(err)
		}
		for _, asked := range []string{"cpu,3G", "cpu,64G", "cpu,200G,stream=90G", "cpu,4T,stream=500G"} {
			m, err := estimate.ParseMachine(asked)
			if err != nil {
				t.Fatal(err)
			}
			h, err := s.OnHost(src, &m, asked)
			if err != nil {
				fmt.Fprintln(&out, "refused", table.Facts(err.Error()))
				continue
			}
			if err := h.Print(&out); err != nil {
				t.Fatal(err)
			}
		}
		experts := func(of *family.Source) {
			layers, each := of.ExpertLayers()
			fmt.Fprintf(&out, "%d layers, %d experts, %d chosen, stored as %v, plain %v, by layer %v, %d tensors\n",
				layers, each, of.ChosenExperts(), of.ExpertFormat(), of.PlainExperts(), of.LayerExperts(),
				of.Weights.Len())
		}
		experts(src)
		src.DropDrafts()
		src.DropDrafts()
		experts(src)
		for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
			lines = append(lines, strings.TrimRight("  "+line, " "))
		}
	}
	table.Check(t, "descriptions.txt", lines)
}
