package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Arch is the architecture a kernel was built for.
type Arch uint8

// The architectures in the catalogues.
const (
	ArchUnset Arch = iota
	CPU
	SM80
	SM86
	SM89
	SM90
	SM100
	SM103
	SM110
	SM120
	SM121
	GFX95
)

var archs = enum[Arch]{"architecture",
	[]string{"", "cpu", "sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121", "gfx95"}}

func (a Arch) String() string                { return archs.text(a) }
func (a Arch) MarshalText() ([]byte, error)  { return archs.marshal(a) }
func (a *Arch) UnmarshalText(t []byte) error { return archs.unmarshal(a, t) }

// CUDA reports whether the architecture is an NVIDIA GPU.
func (a Arch) CUDA() bool { return a >= SM80 && a <= SM121 }

// AMD reports whether the architecture is an AMD GPU.
func (a Arch) AMD() bool { return a == GFX95 }

// BusRate returns the rate of copies between host and device in bytes per second, for the fastest bus of the
// architecture's boards: 25e9 over PCIe 4.0 x16, and 54e9 over PCIe 5.0 x16, measured on an H200. It is 0 if device and
// host share their memory, or if the bus is not known.
func (a Arch) BusRate() int64 {
	switch {
	case a.Major() == 8:
		return 25 * gb
	case a == SM90 || a.SM100Family() || a == SM120:
		return 54 * gb
	}
	return 0
}

// SM100Family reports whether kernel libraries use the same binary for the architecture as for compute capability
// 10.0.
func (a Arch) SM100Family() bool { return a == SM100 || a == SM103 }

// SM12x reports whether the architecture is a workstation GPU of compute capability 12.0 or 12.1.
func (a Arch) SM12x() bool { return a == SM120 || a == SM121 }

// Major returns the first part of the compute capability, 0 for hardware without CUDA.
func (a Arch) Major() int {
	switch a {
	case SM80, SM86, SM89:
		return 8
	case SM90:
		return 9
	case SM100, SM103:
		return 10
	case SM110:
		return 11
	case SM120, SM121:
		return 12
	case ArchUnset, CPU, GFX95:
		return 0
	}
	return 0
}

// Hardware holds the properties of a device that plans depend on. Packages that open a device fill it; HardwareFor
// returns typical values for explain.
type Hardware struct {
	Arch Arch `json:"arch"`
	// SmemOptin is the opt-in limit of shared memory per block, in bytes: it
	// bounds the schedules of the public catalogue.
	SmemOptin int `json:"smem_optin,omitempty"`
	// SMs is the number of multiprocessors.
	SMs int `json:"sms,omitempty"`
	// MemoryBytes is the device's total memory; 0 means unknown.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// Toolkit is the CUDA version times ten: 128 is 12.8.
	Toolkit int `json:"toolkit,omitempty"`
	// Heads64 means that the SM100 build has the 64-head sparse kernel.
	Heads64 bool `json:"heads64,omitempty"`
	// Preshuffle means that the paged-score kernel over preshuffled keys can be used (AMD).
	Preshuffle bool `json:"preshuffle,omitempty"`
	// NoTiles means that attention on this CPU uses no matrix unit (such as AMX).
	NoTiles bool `json:"no_tiles,omitempty"`
	// Portable means that a GPU uses the portable kernels and not kernels for its architecture.
	Portable bool `json:"portable,omitempty"`
	// NativeNextN lists how many rows of a request, more than one, a paged-score kernel of the catalogue sparrow
	// processes at once. Other numbers of rows are cut into equal groups of such sizes, or into single rows. The CPU
	// kernel supports any number, the GPU kernels up to 4.
	NativeNextN []int `json:"native_next_n,omitempty"`
	// Missing lists the kernels whose library, or build for this architecture, is not installed.
	Missing []Kernel `json:"missing,omitempty"`
}

const gb = 1_000_000_000

// gpuNextN is Hardware.NativeNextN of all GPUs.
var gpuNextN = []int{2, 3, 4}

// presets holds the properties of one widely used device for each architecture.
var presets = []Hardware{
	{Arch: CPU, NativeNextN: []int{2, 3, 4, 5, 6, 7, 8}},
	{Arch: SM80, SmemOptin: 166912, SMs: 108, MemoryBytes: 80 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM86, SmemOptin: 101376, SMs: 84, MemoryBytes: 48 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM89, SmemOptin: 101376, SMs: 142, MemoryBytes: 48 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM90, SmemOptin: 232448, SMs: 132, MemoryBytes: 141 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM100, SmemOptin: 232448, SMs: 148, MemoryBytes: 180 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM103, SmemOptin: 232448, SMs: 148, MemoryBytes: 268 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM110, SmemOptin: 232448, SMs: 20, MemoryBytes: 128 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM120, SmemOptin: 101376, SMs: 188, MemoryBytes: 96 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: SM121, SmemOptin: 101376, SMs: 48, MemoryBytes: 128 * gb, Toolkit: 130, NativeNextN: gpuNextN},
	{Arch: GFX95, SmemOptin: 163840, SMs: 256, MemoryBytes: 288 * gb, Preshuffle: true},
}

// device is a named device of an architecture. Fields that are set replace those of the architecture's preset.
type device struct {
	arch        Arch
	sms         int
	memoryBytes int64
}

// devices are common names of architectures.
var devices = map[string]device{
	"a100": {arch: SM80}, "a100-40gb": {SM80, 108, 40 * gb}, "a800": {arch: SM80}, "a40": {arch: SM86},
	"a6000": {arch: SM86}, "rtx3090": {SM86, 82, 24 * gb},
	"l4": {SM89, 58, 24 * gb}, "l40": {arch: SM89}, "l40s": {arch: SM89}, "rtx4090": {SM89, 128, 24 * gb},
	"rtx4080": {SM89, 76, 16 * gb}, "rtx5090": {SM120, 170, 32 * gb}, "rtx5080": {SM120, 84, 16 * gb},
	"rtxpro6000": {arch: SM120},
	"h100":       {SM90, 132, 80 * gb}, "h200": {arch: SM90}, "h20": {SM90, 78, 96 * gb}, "gh200": {SM90, 132, 96 * gb},
	"h800": {SM90, 132, 80 * gb},
	"b200": {arch: SM100}, "gb200": {arch: SM100}, "b300": {arch: SM103}, "gb300": {arch: SM103},
	"thor": {arch: SM110}, "gb10": {arch: SM121}, "dgxspark": {arch: SM121},
	"mi350x": {arch: GFX95}, "mi355x": {arch: GFX95},
}

// DevicesOf lists the devices of an architecture that HardwareFor supports by name, in order.
func DevicesOf(a Arch) []string {
	var names []string
	for name, d := range devices {
		if d.arch == a {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// HardwareFor returns typical properties of the device, or of the architecture, with the given name.
func HardwareFor(name string) (Hardware, error) {
	arch, ok := archs.find(name)
	var d device
	if !ok {
		d, ok = devices[strings.ToLower(name)]
		arch = d.arch
	}
	if !ok || arch == ArchUnset {
		return Hardware{}, &Error{Code: E01, Asked: fmt.Sprintf("hardware %q", name),
			Supported: archs.list() + ", or a device such as h200", Try: "--hw cpu"}
	}
	for _, h := range presets {
		if h.Arch == arch {
			h.SMs, h.MemoryBytes = cmp.Or(d.sms, h.SMs), cmp.Or(d.memoryBytes, h.MemoryBytes)
			return h.Clone(), nil
		}
	}
	return Hardware{}, &Error{Code: E01, Asked: "hardware " + name, Supported: archs.list(), Try: "--hw cpu"}
}

// HardwareNames lists the names that HardwareFor accepts.
func HardwareNames() []string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Arch.String()
	}
	return names
}

// PagedRowLimit is L of dispatch section 17: the schedule kernel keeps five
// int32 per row plus one in shared memory, so 4*(5L+1) <= smemOptin.
func (h *Hardware) PagedRowLimit() int {
	if h.SmemOptin < 24 {
		return 0
	}
	return (h.SmemOptin/4 - 1) / 5
}

// Clone returns a copy that shares no memory with the description.
func (h Hardware) Clone() Hardware {
	h.NativeNextN, h.Missing = slices.Clone(h.NativeNextN), slices.Clone(h.Missing)
	return h
}

// SplitParts returns the number of parts into which a kernel with the given number of heads cuts the key range: on SM90
// a block computes 64 heads, on SM100 all heads.
func (h *Hardware) SplitParts(heads int) int {
	if h.Arch == SM90 && heads > 64 {
		return h.SMs / (heads / 64)
	}
	return h.SMs
}

// portable reports whether the portable kernels are used: because Portable is set, or because the architecture has no
// kernels of its own.
func (h *Hardware) portable() bool { return h.Portable || h.Arch.CUDA() && h.Arch != SM90 }

// Graphs reports whether passes can be captured as graphs and replayed. CPUs do not support this.
func (h *Hardware) Graphs() bool { return h.Arch != CPU }

func (h *Hardware) missing(k Kernel) bool {
	return slices.Contains(h.Missing, k)
}
