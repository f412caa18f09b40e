package estimate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sparrow/internal/cost"
	"sparrow/internal/unit"
	"sparrow/plan"
)

// Machine describes several GPUs of one kind and their host, or only the host if GPUs is 0. The memory of the host is 0
// if it was not stated.
type Machine struct {
	GPUs int
	cost.Machine
	// Arch is the architecture of the GPUs. Portable means that they are not Hopper GPUs. Stated is a text about how
	// their rates were computed from published figures; it is empty for an H200, whose rates were measured.
	Arch     plan.Arch
	Portable bool
	Stated   string
}

// H200s returns the given number of H200s with the measured host, whose memory size is 0.
func H200s(gpus int) Machine {
	return Machine{GPUs: gpus, Machine: cost.H200(), Arch: plan.SM90}
}

// card holds the published figures of a GPU: memory bandwidth in GB/s, and dense bf16 products in TFLOP/s.
type card struct{ memory, bf16 float64 }

// cards are the GPUs that can be named in a machine, in addition to h200.
var cards = map[string]card{
	"a100": {2039, 312}, "a100-40gb": {1555, 312}, "a800": {2039, 312}, "a40": {696, 150}, "a6000": {768, 155},
	"rtx3090": {936, 71}, "l4": {300, 121}, "l40": {864, 181}, "l40s": {864, 362}, "rtx4090": {1008, 165},
	"rtx4080": {717, 97}, "rtx5090": {1792, 210}, "rtx5080": {960, 113}, "rtxpro6000": {1792, 252},
	"h100": {3350, 989}, "h800": {3350, 989}, "gh200": {4000, 989}, "h20": {4000, 148}, "b200": {8000, 2250},
	"gb200": {8000, 2250}, "b300": {8000, 2250}, "gb300": {8000, 2250},
}

// h200Card holds the figures of the H200, on which rates were measured.
var h200Card = card{4800, 989}

func cardNames() []string { return append([]string{"h200"}, slices.Sorted(maps.Keys(cards))...) }

// likeCard suggests the GPU whose name contains a number such as 4090; empty if there is not exactly one.
func likeCard(number string) string {
	names := slices.DeleteFunc(cardNames(), func(name string) bool { return !strings.Contains(name, number) })
	if number == "" || len(names) != 1 {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", names[0])
}

// stated returns a machine whose GPUs have the rates of an H200, scaled by published figures. FP8 products are slower,
// because portable kernels convert FP8 to bf16 first.
func stated(name string, c card, gpus int) (Machine, error) {
	hw, err := plan.HardwareFor(name)
	if err != nil {
		return Machine{}, err
	}
	m := H200s(gpus)
	m.Arch, m.Portable = hw.Arch, hw.Arch != plan.SM90
	g := &m.GPU
	g.Name, g.MemoryBytes = name, hw.MemoryBytes
	read, ops := c.memory/h200Card.memory, c.bf16/h200Card.bf16
	if m.Portable {
		g.FP8, g.ExpertOps, g.NarrowExpertOps = g.BF16, g.WideExpertOps, min(g.NarrowExpertOps, g.WideExpertOps)
		g.ScoreOps /= 2
	}
	for _, rate := range []*float64{&g.Weights, &g.Experts, &g.NarrowExperts, &g.Keys, &g.Scores} {
		*rate *= read
	}
	for _, rate := range []*float64{&g.FP8, &g.BF16, &g.ExpertOps, &g.WideExpertOps, &g.NarrowExpertOps, &g.DenseOps,
		&g.ScoreOps} {
		*rate *= ops
	}
	slower := max(1/read, 1/ops)
	for _, time := range []*float64{&g.Prompt, &g.V4Row, &g.V4Prompt} {
		*time *= slower
	}
	m.Decodes = slices.Clone(m.Decodes)
	for i := range m.Decodes {
		d := &m.Decodes[i]
		d.Whole, d.Keys256, d.Keys512 = d.Whole*slower, d.Keys256*slower, d.Keys512*slower
	}
	if bus := float64(hw.Arch.BusRate()) / 1e6; bus > 0 {
		m.Bus.Rate = min(m.Bus.Rate, bus)
	}
	if m.Portable && m.Arch != plan.SM100 && m.Arch != plan.SM103 {
		m.Link.Rate = m.Bus.Rate // GPUs without a faster link between them
	}
	m.Stated = fmt.Sprintf("rates are those of an H200, scaled by published figures of %s (%s, %.0f GB/s, %.0f "+
		"TFLOP/s of bf16, bus %.0f GB/s); nothing was measured on one", name, unit.Bytes(g.MemoryBytes), c.memory,
		c.bf16, m.Bus.Rate/1e3)
	if m.Portable {
		m.Stated += ", and its portable kernels are slower than Hopper's: expect less"
	}
	return m, nil
}

// mostGPUs is the maximum number of GPUs of a machine.
const mostGPUs = 64

// MachineForm describes the notation of ParseMachine, for help texts.
const MachineForm = `a GPU with the memory of its host, such as "h200,128G" or "8xh200,1T", or "cpu,64G" without a ` +
	`GPU ("cpu" has the memory of this machine); known GPUs: h200, and by published figures h100, a100, rtx3090, ` +
	`rtx4090, rtx5090 and the others of 'sparrow explain --hw'. Give others by their own figures: ` +
	`"h200,128G,memory=80G,read=3.3T,bus=25G,stream=90G,cores=32" has 80 GiB of GPU memory read at 3.3 TB/s, 25 GB/s between host and GPU, and 32 cores that read 90 GB/s`

// ParseMachine reads a machine.
func ParseMachine(text string) (Machine, error) {
	bad := func(format string, args ...any) (Machine, error) {
		return Machine{}, fmt.Errorf("hardware %q: %s; want a machine such as \"h200,128G\", \"8xh200,1T\" or "+
			"\"cpu,64G\"; known GPUs: %s; 'sparrow inspect --help' shows how to describe others", text,
			fmt.Sprintf(format, args...), strings.Join(cardNames(), ", "))
	}
	fields := strings.Split(strings.ToLower(text), ",")
	gpus := 1
	name := strings.TrimSpace(fields[0])
	if number, kind, several := strings.Cut(name, "x"); several && number != "" && number[0] <= '9' {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > mostGPUs {
			return bad("%q is not valid; want a number of GPUs from 1 to %d", number, mostGPUs)
		}
		gpus, name = n, kind
	}
	var m Machine
	switch {
	case name == "h200":
		m = H200s(gpus)
	case cards[name] != card{}:
		var err error
		if m, err = stated(name, cards[name], gpus); err != nil {
			return bad("%v", err)
		}
	case name != "cpu":
		return bad("GPU %q is unknown%s", name, likeCard(name))
	case gpus != 1:
		return bad("%d machines without a GPU were given; want one", gpus)
	}
	for _, f := range fields[1:] {
		key, value, named := strings.Cut(strings.TrimSpace(f), "=")
		if !named {
			key, value = "host", key
		}
		if m.GPUs == 0 && key != "host" && key != "stream" {
			return bad("%s= applies to a machine with a GPU; omit it, or give a GPU", key)
		}
		if err := m.set(key, value); err != nil {
			return bad("%v", err)
		}
	}
	return m, nil
}

// set changes one figure of a machine.
func (m *Machine) set(key, value string) error {
	if key == "cores" {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 4096 {
			return fmt.Errorf("%q is not a number of cores from 1 to 4096", value)
		}
		m.CPU.Cores = n
		return nil
	}
	change, ok := figures[key]
	if !ok {
		return fmt.Errorf("the figure %q is unknown", key)
	}
	n, err := amount(value)
	if err == nil {
		change(m, n)
	}
	return err
}

// figures maps the names of numeric settings to functions that set the fields.
var figures = map[string]func(m *Machine, n float64){
	"host":   func(m *Machine, n float64) { m.CPU.MemoryBytes = int64(n * gib) },
	"memory": func(m *Machine, n float64) { m.GPU.MemoryBytes = int64(n * gib) },
	"bus":    func(m *Machine, n float64) { m.Bus.Rate = n / 1e6 },
	"stream": func(m *Machine, n float64) { m.CPU.Stream = n / 1e6 },
	"read": func(m *Machine, n float64) {
		// Times bound by memory bandwidth are scaled; times of products of many rows are not.
		was := m.GPU.Weights
		m.GPU.Weights = n / 1e6
		for _, rate := range []*float64{&m.GPU.Experts, &m.GPU.Keys, &m.GPU.Scores} {
			*rate *= m.GPU.Weights / was
		}
	},
}

// gib is the number of GB in a GiB: sizes of memory are in GiB, rates in GB.
const gib = float64(1<<30) / 1e9

// amount reads a number with the unit G (billions) or T (thousands of billions).
func amount(text string) (float64, error) {
	digits, unit := strings.TrimSuffix(strings.TrimSuffix(text, "b"), "i"), 1e9
	switch {
	case strings.HasSuffix(digits, "g"):
	case strings.HasSuffix(digits, "t"):
		unit = 1e12
	default:
		return 0, fmt.Errorf("%q has no unit; want G or T", text)
	}
	n, err := strconv.ParseFloat(digits[:len(digits)-1], 64)
	if err != nil || !(n > 0) || n*unit > 1e16 {
		return 0, fmt.Errorf("%q is not an amount such as 128G", text)
	}
	return n * unit, nil
}
