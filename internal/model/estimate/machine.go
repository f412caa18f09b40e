package estimate

import (
	"fmt"
	"strconv"
	"strings"

	"sparrow/internal/cost"
)

// Machine is GPUs of one kind and their host; without GPUs it is only the host, whose memory is 0 where it was not
// stated.
type Machine struct {
	GPUs int
	cost.Machine
}

// H200s returns that many H200s with a host as measured, without memory for experts.
func H200s(gpus int) Machine {
	return Machine{GPUs: gpus, Machine: cost.H200()}
}

// mostGPUs bounds what a machine may have.
const mostGPUs = 64

// MachineForm states how machines are written.
const MachineForm = `a GPU with the memory of its host, such as "h200,128G" or "8xh200,1T", or "cpu,64G" without a ` +
	`GPU ("cpu" has the memory of this machine); known GPUs: h200. State ` +
	`others by their own figures: "h200,128G,memory=80G,read=3.3T,bus=25G,stream=90G,cores=32" has 80 GiB of GPU memory ` +
	`read at 3.3 TB/s, 25 GB/s between host and GPU, and 32 cores that read 90 GB/s`

// ParseMachine reads a machine.
func ParseMachine(text string) (Machine, error) {
	bad := func(format string, args ...any) (Machine, error) {
		return Machine{}, fmt.Errorf("hardware %q: %s; want %s", text, fmt.Sprintf(format, args...), MachineForm)
	}
	fields := strings.Split(strings.ToLower(text), ",")
	gpus := 1
	name := strings.TrimSpace(fields[0])
	if number, kind, several := strings.Cut(name, "x"); several && number != "" && number[0] <= '9' {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > mostGPUs {
			return bad("%q is not a number of GPUs from 1 to %d", number, mostGPUs)
		}
		gpus, name = n, kind
	}
	var m Machine
	switch {
	case name == "h200":
		m = H200s(gpus)
	case name != "cpu":
		return bad("the figures of a GPU %q are not known", name)
	case gpus != 1:
		return bad("%d machines without a GPU; want one", gpus)
	}
	for _, f := range fields[1:] {
		key, value, named := strings.Cut(strings.TrimSpace(f), "=")
		if !named {
			key, value = "host", key
		}
		if m.GPUs == 0 && key != "host" && key != "stream" {
			return bad("%s= is about a machine with a GPU", key)
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
		return fmt.Errorf("no figure %q is known", key)
	}
	n, err := amount(value)
	if err == nil {
		change(m, n)
	}
	return err
}

// figures are the settings that are amounts, and what they change.
var figures = map[string]func(m *Machine, n float64){
	"host":   func(m *Machine, n float64) { m.CPU.MemoryBytes = int64(n * gib) },
	"memory": func(m *Machine, n float64) { m.GPU.MemoryBytes = int64(n * gib) },
	"bus":    func(m *Machine, n float64) { m.Bus.Rate = n / 1e6 },
	"stream": func(m *Machine, n float64) { m.CPU.Stream = n / 1e6 },
	"read": func(m *Machine, n float64) {
		// Times that are bound by memory change in proportion; products of many rows do not change.
		was := m.GPU.Weights
		m.GPU.Weights = n / 1e6
		for _, rate := range []*float64{&m.GPU.Experts, &m.GPU.Keys, &m.GPU.Scores} {
			*rate *= m.GPU.Weights / was
		}
	},
}

// gib is a GiB in GB: amounts of memory are counted in GiB, rates in GB.
const gib = float64(1<<30) / 1e9

// amount reads a number of billions (G) or of thousands of them (T).
func amount(text string) (float64, error) {
	digits, unit := strings.TrimSuffix(strings.TrimSuffix(text, "b"), "i"), 1e9
	switch {
	case strings.HasSuffix(digits, "g"):
	case strings.HasSuffix(digits, "t"):
		unit = 1e12
	default:
		return 0, fmt.Errorf("%q has no unit G or T", text)
	}
	n, err := strconv.ParseFloat(digits[:len(digits)-1], 64)
	if err != nil || !(n > 0) || n*unit > 1e16 {
		return 0, fmt.Errorf("%q is not an amount such as 128G", text)
	}
	return n * unit, nil
}
