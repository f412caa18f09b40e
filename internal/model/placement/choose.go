package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"sparrow/internal/cost"
	"sparrow/internal/model/usage"
	"sparrow/internal/unit"
)

// ErrNoRoom is wrapped if the experts of a model do not fit in device and host memory.
var ErrNoRoom = errors.New("the experts do not fit")

// ErrHost is wrapped in addition to ErrNoRoom if the host's memory is too small.
var ErrHost = errors.New("the host has too little memory for the experts that are not on the device")

// Ask holds the inputs of Choose: sizes of experts and memories, measured costs, and how often experts are chosen.
type Ask struct {
	Layers []int // number of experts of each layer, drafting layers last; 0 for layers without experts
	Unused int   // number of layers at the end that are not run: drafting layers if drafting is disabled
	Chosen int   // experts that a row uses in each layer with experts, over all ranks
	Ranks  int   // ranks that share the experts of each layer equally; 0 means 1
	Bytes  int64 // bytes of one expert, in device and host memory
	// Shared means that one copy in host memory serves both methods (kernel.ExpertWeights.Plain). Otherwise an expert
	// with two methods is in host memory twice.
	Shared bool
	Format cost.Format
	Type   string // type of the experts' values, for messages; empty means Format

	Device int64 // bytes of device memory for experts; negative if everything else does not fit
	Host   int64 // bytes of host memory for experts

	// Machine holds the rates of the CPU, the bus and the device. The device reads its resident experts before it
	// fetches others.
	cost.Machine
	Chunk int          // rows of a prompt in one step
	Rows  int          // rows of the decode step for which experts are divided between CPU and bus; 0 means 1
	Usage *usage.Table // nil means that every expert is chosen equally often
	// OneMethod requires the same method in both phases, so that a token that is computed again has the same bits.
	OneMethod bool
}

// Choice is a placement with the numbers that describe it.
type Choice struct {
	Placement *Placement `json:"-"`
	Experts   int        `json:"experts"`
	Resident  int        `json:"resident"` // experts in device memory
	// Covered is the fraction of choices whose expert is in device memory.
	Covered     float64 `json:"covered"`
	DeviceBytes int64   `json:"device_bytes"` // bytes of experts in device memory
	HostBytes   int64   `json:"host_bytes"`
	Decode      Method  `json:"-"` // method of experts in host memory
	Prefill     Method  `json:"-"`
	// Beside is the fraction of experts in host memory that are fetched for decodes while the CPU computes the others.
	Beside  float64  `json:"beside,omitempty"`
	Reasons []string `json:"reasons"`
}

// Choose assigns a location and a method to every expert: the most frequently chosen experts stay on the device, as
// many as fit, and the others are in host memory. It depends only on its inputs: equal inputs give equal results.
func Choose(a Ask) (*Choice, error) {
	all := a.order()
	fit := int(min(max(a.Device, 0)/max(a.Bytes, 1), int64(len(all))))
	rest := len(all) - fit
	if need := int64(rest) * a.Bytes; a.Device < 0 || rest > 0 && need > a.Host {
		return nil, a.refuse(len(all), fit, need)
	}
	c := &Choice{Placement: Uniform(len(a.Layers), 0, 0), Experts: len(all), Resident: fit,
		DeviceBytes: int64(fit) * a.Bytes, HostBytes: int64(rest) * a.Bytes}
	for l, n := range a.Layers {
		c.Placement.Decode[l], c.Placement.Prefill[l] = make([]Method, n), make([]Method, n)
	}
	c.methods(&a)
	c.Placement.Shared = a.Shared && c.Decode == Computed && c.Prefill == Fetched
	why := ""
	switch twice := 2 * c.HostBytes; {
	case c.Decode == c.Prefill:
	case a.OneMethod:
		why = "so that a token that is computed again has the same bits"
	case twice > a.Host && !c.Placement.Shared:
		why = fmt.Sprintf("two copies, %s, do not fit the host, which has %s", unit.Bytes(twice), unit.Bytes(a.Host))
	default:
		c.Beside = a.beside(c)
	}
	if why != "" {
		c.oneMethod(&a)
		c.Placement.Shared = false
	}
	c.Covered = 1
	total, host := 0.0, 0.0
	far := make([]float64, len(a.Layers)) // by layer: sum of Beside over its experts so far, minus fetched experts
	for i, x := range all {
		total += x.share
		if i < fit {
			continue
		}
		host += x.share
		decode := c.Decode
		if far[x.layer] += c.Beside; far[x.layer] >= 1 {
			far[x.layer]--
			decode = Fetched
		}
		if decode != c.Prefill && !c.Placement.Shared {
			c.HostBytes += a.Bytes
		}
		c.Placement.Decode[x.layer][x.expert], c.Placement.Prefill[x.layer][x.expert] = decode, c.Prefill
	}
	if total > 0 {
		c.Covered = 1 - host/total
	}
	c.explain(&a)
	if why != "" && rest > 0 {
		c.Reasons = append(c.Reasons, fmt.Sprintf("experts in host memory are %v for decodes and prompts, which "+
			"costs less time than the other method: %s", c.Decode, why))
	}
	return c, nil
}

// candidate is an expert that could be stored on the device.
type candidate struct {
	layer, expert int
	share         float64 // fraction of rows that choose the expert
}

// order lists all experts, first those that should be on the device. Experts that are chosen equally often alternate
// between layers, so that all layers have equally many experts in host memory, which determine the time of a layer.
func (a *Ask) order() []candidate {
	var all []candidate
	for l, n := range a.Layers {
		for e := range n {
			x := candidate{layer: l, expert: e, share: float64(a.Chosen) / float64(n*max(a.Ranks, 1))}
			if a.Usage != nil {
				x.share = a.Usage.Share(l, e)
			}
			if l >= len(a.Layers)-a.Unused {
				x.share = 0
			}
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(y.share, x.share), cmp.Compare(x.expert, y.expert), cmp.Compare(x.layer, y.layer))
	})
	return all
}

// refuse returns an error with the missing memory.
func (a *Ask) refuse(all, fit int, need int64) error {
	if a.Device < 0 {
		return fmt.Errorf("placement: %w: everything except experts needs %s more device memory than there is, and "+
			"experts take %s in addition", ErrNoRoom, unit.Bytes(-a.Device), unit.Bytes(need))
	}
	return fmt.Errorf("placement: %w: %w: %d experts of %s take %s; %d of them fit the device, the other %d take %s "+
		"and the host has %s for them: %s are missing", ErrNoRoom, ErrHost, all, unit.Bytes(a.Bytes),
		unit.Bytes(int64(all)*a.Bytes), fit, all-fit, unit.Bytes(need), unit.Bytes(a.Host), unit.Bytes(need-a.Host))
}

// Times holds the microseconds of one use of an expert in host memory, by method.
type Times struct{ Computed, Fetched float64 }

// TimesOf returns the times for a number of rows. If streamed is set, experts are copied during the computation of the
// previous layer, as for prompts, so only the time of their bytes counts.
func (a *Ask) TimesOf(rows float64, streamed bool) Times {
	t := Times{Computed: float64(a.Bytes)/a.CPU.Rate(a.Format, rows) + a.CPU.Dispatch,
		Fetched: float64(a.Bytes) / a.Bus.Rate}
	if !streamed {
		t.Fetched += a.Bus.Wait
	}
	return t
}

// promptRows returns the number of rows of a prompt's step that choose an expert, if all experts are chosen equally
// often.
func (a *Ask) promptRows() float64 {
	most := 1
	for _, n := range a.Layers {
		most = max(most, n)
	}
	return max(float64(a.Chunk*a.Chosen)/float64(most*max(a.Ranks, 1)), 1)
}

func (t Times) of(m Method) float64 {
	if m == Fetched {
		return t.Fetched
	}
	return t.Computed
}

// fewRows is the maximum number of decode rows for which a layer mostly uses at most one expert in host memory. One
// expert is not divided between CPU and bus.
const fewRows = 4

// beside returns the fraction of experts in host memory that should be fetched for decodes while the CPU computes the
// others, so that both end at the same time.
func (a *Ask) beside(c *Choice) float64 {
	if a.Rows <= fewRows || c.Resident == c.Experts || c.Decode != Computed || c.Prefill != Fetched {
		return 0
	}
	t := a.TimesOf(a.decodeRows(), false)
	chosen := float64(a.Rows) * a.promptRows() / float64(a.Chunk) / a.decodeRows() // fraction of experts that are read
	layers := 0.0
	for _, n := range a.Layers[:len(a.Layers)-a.Unused] {
		layers += min(float64(n), 1)
	}
	layers = max(layers, 1)
	far := float64(c.Experts-c.Resident) / layers * chosen
	own := 0.0
	if rate := a.GPU.NarrowExperts; rate > 0 {
		own = float64(c.Resident) / layers * chosen * float64(a.Bytes) / rate
	}
	return max(far*t.Computed-own, 0) / (far * (t.Computed + t.Fetched))
}

// decodeRows returns the number of rows of a decode step that choose an expert, averaged over the experts that at least
// one row chooses, if all experts are chosen equally often.
func (a *Ask) decodeRows() float64 {
	share := a.promptRows() / float64(a.Chunk)
	rows := float64(max(a.Rows, 1))
	return rows * share / (1 - math.Pow(1-min(share, 1), rows))
}

// oneMethod sets the same method for both phases: the one with the smaller loss of speed.
func (c *Choice) oneMethod(a *Ask) {
	decode, prompt := a.TimesOf(1, false), a.TimesOf(a.promptRows(), true)
	if decode.of(c.Prefill)/decode.of(c.Decode) < prompt.of(c.Decode)/prompt.of(c.Prefill) {
		c.Decode = c.Prefill
	} else {
		c.Prefill = c.Decode
	}
}

// methods chooses the methods of experts in host memory: for decodes by the time of one row, for prompts by the time of
// promptRows rows.
func (c *Choice) methods(a *Ask) {
	c.Decode, c.Prefill = Computed, Computed
	if t := a.TimesOf(1, false); t.Fetched < t.Computed {
		c.Decode = Fetched
	}
	if t := a.TimesOf(a.promptRows(), true); t.Fetched < t.Computed {
		c.Prefill = Fetched
	}
}

// explain adds the reasons: where experts are stored and why, with the numbers.
func (c *Choice) explain(a *Ask) {
	say := func(format string, args ...any) { c.Reasons = append(c.Reasons, fmt.Sprintf(format, args...)) }
	if c.Resident == c.Experts {
		say("all %d experts, %s, are in device memory, which has %s for them", c.Experts, unit.Bytes(c.DeviceBytes),
			unit.Bytes(a.Device))
		return
	}
	say("%d of %d experts (%.1f %%) are in device memory: %s of memory / %s per expert = %d", c.Resident, c.Experts,
		100*float64(c.Resident)/float64(c.Experts), unit.Bytes(a.Device), unit.Bytes(a.Bytes), c.Resident)
	copies := ""
	switch {
	case c.Placement.Shared:
		copies = " in one copy for both methods"
	case c.Decode != c.Prefill:
		copies = " in two copies, one for each method"
	}
	say("%d experts, %s%s, are in host memory, which has %s for them", c.Experts-c.Resident, unit.Bytes(c.HostBytes),
		copies, unit.Bytes(a.Host))
	if a.Usage == nil {
		say("choices are assumed to be spread evenly, so every layer has the same share")
	} else {
		say("by counted use, %.1f %% of choices select an expert in device memory", 100*c.Covered)
	}
	if a.Unused > 0 {
		say("drafting is off, so the experts of the drafting layer are placed in host memory first")
	}
	gb := func(rate float64) float64 { return rate / 1e3 }
	rate := a.CPU.Rate(a.Format, 1)
	t := a.TimesOf(1, false)
	say("decode: %s. One row of an expert: computed %s / %.0f GB/s (%s, %d cores) + %.1f us = %.0f us; fetched %s / "+
		"%.0f GB/s + %.0f us = %.0f us", verb(c.Decode), unit.Bytes(a.Bytes), gb(rate), a.typed(), a.CPU.Cores,
		a.CPU.Dispatch, t.Computed, unit.Bytes(a.Bytes), gb(a.Bus.Rate), a.Bus.Wait, t.Fetched)
	if c.Beside > 0 {
		t := a.TimesOf(a.decodeRows(), false)
		say("%.0f %% of them are fetched while the CPU computes the others, so that both end at the same time: in "+
			"steps of %d rows an expert takes %.0f us on the CPU and %.0f us on the bus, and the device reads its "+
			"resident experts before the fetched ones", 100*c.Beside, a.Rows,
			t.Computed, t.Fetched)
	}
	rows := a.promptRows()
	t = a.TimesOf(rows, true)
	say("prefill: %s. %.0f rows of an expert (a step of %d rows): computed %.0f us; streamed %s / %.0f GB/s = %.0f us",
		streamed(c.Prefill), rows, a.Chunk, t.Computed, unit.Bytes(a.Bytes), gb(a.Bus.Rate), t.Fetched)
}

// typed returns the type of the experts as text, and the format whose measured rate is used if that is a different one.
func (a *Ask) typed() string {
	if a.Type == "" || a.Type == a.Format.String() {
		return a.Format.String()
	}
	return fmt.Sprintf("%s by the rate of %s", a.Type, a.Format)
}

func verb(m Method) string {
	if m == Fetched {
		return "experts in host memory are fetched over the bus"
	}
	return "experts in host memory are computed by the CPU"
}

func streamed(m Method) string {
	if m == Fetched {
		return "experts in host memory are streamed to the device"
	}
	return verb(m)
}
