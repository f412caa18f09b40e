package placement

import (
	"fmt"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/model/usage"
	"sparrow/internal/testkit/table"
)

// The memory and the method of each expert, and the figures of the reasons, are as in the table.
func TestTableOfChoices(t *testing.T) {
	used := usage.New("deepseek_v4", 4, 8, 2)
	for l := range 4 {
		counts := make([]uint64, 8)
		for e := range counts {
			counts[e] = uint64(100 * (l + 1) * (8 - e))
		}
		used.Add(l, counts)
	}
	small := func(change func(a *Ask)) Ask {
		a := Ask{Layers: []int{8, 8, 8, 8}, Chosen: 2, Bytes: 13_369_344, Format: cost.E2M1, Device: 20 * 13_369_344,
			Host: 1 << 30, Machine: cost.H200(), Chunk: 8192, Rows: 32}
		change(&a)
		return a
	}
	var lines []string
	for _, c := range []struct {
		name string
		ask  Ask
	}{
		{"plain", small(func(*Ask) {})},
		{"all fit", small(func(a *Ask) { a.Device = 32 * a.Bytes })},
		{"one too few", small(func(a *Ask) { a.Device = 32*a.Bytes - 1 })},
		{"used", small(func(a *Ask) { a.Usage = used })},
		{"used, the last layer unused", small(func(a *Ask) { a.Usage, a.Unused = used, 1 })},
		{"the last layer unused", small(func(a *Ask) { a.Unused = 1 })},
		{"one method", small(func(a *Ask) { a.OneMethod = true })},
		{"a small host", small(func(a *Ask) { a.Host = 13 * a.Bytes })},
		{"a host that is too small", small(func(a *Ask) { a.Host = 11 * a.Bytes })},
		{"no room for the rest", small(func(a *Ask) { a.Device = -5 })},
		{"ranks", small(func(a *Ask) { a.Ranks = 4 })},
		{"few rows", small(func(a *Ask) { a.Rows = 4 })},
		{"few cores", small(func(a *Ask) { a.CPU.Cores, a.CPU.Stream = 2, 10_000 })},
		{"a slow bus", small(func(a *Ask) { a.Bus.Rate = 5_000 })},
		{"bf16 of another name", small(func(a *Ask) { a.Format, a.Type = cost.BF16, "int4" })},
		{"a layer without experts", small(func(a *Ask) { a.Layers = []int{0, 8, 8, 8} })},
	} {
		got, err := Choose(c.ask)
		if err != nil {
			lines = append(lines, c.name+": refused "+table.Facts(err.Error()))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %d of %d here, covered %.4f, %d and %d bytes, %v and %v, beside %.4f",
			c.name, got.Resident, got.Experts, got.Covered, got.DeviceBytes, got.HostBytes, got.Decode, got.Prefill,
			got.Beside))
		for l := range c.ask.Layers {
			lines = append(lines, fmt.Sprintf("  %v, prompts %v", got.Placement.Decode[l], got.Placement.Prefill[l]))
		}
		for _, why := range got.Reasons {
			lines = append(lines, "  because "+table.Facts(why))
		}
	}
	table.Check(t, "choices.txt", lines)
}
