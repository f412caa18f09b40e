package estimate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"sparrow/internal/cost"
	"sparrow/internal/kv"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/internal/model/v4"
	"sparrow/internal/unit"
	"sparrow/kernel/cuda"
	"sparrow/layout"
	"sparrow/plan"
)

// Question holds the inputs of Fit: a model and the machine on which it would run.
type Question struct {
	Name    string
	Model   config.Description
	Format  cost.Format // format of the experts, on which their rates depend
	Shared  bool        // one copy of an expert in host memory serves both methods (placement.Ask)
	Weights Weights     // the zero value means the types in which the family is released
	Machine Machine
	Asked   string       // name of the machine, as the user wrote it
	Usage   *usage.Table // nil means that all experts are chosen equally often
	// DeviceBytes limits the memory of each GPU; 0 means all of it.
	DeviceBytes int64
}

// Sizes for which memory is planned: prompt rows of a step (Chunk), number of sequences (Sequences) and tokens of each
// sequence (Tokens).
const (
	Chunk     = 8192
	Sequences = 32
	Tokens    = 8192
)

// Sizes of memory, in bytes, other than weights, cache and passes.
const (
	graphBytes  = 256 << 20
	driverBytes = 256 << 20
	spareBytes  = 1 << 30 // left free on a GPU that experts would otherwise fill
	hostBytes   = 4 << 30 // for the system and the process
	// ringExperts is the number of experts that fit in the buffers for fetched experts: two buffers of 8, and one of
	// 16.
	ringExperts = 32
)

// Part is an amount of memory and what it is used for.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Note  string `json:"note,omitempty"`
}

// Least holds the minimum sizes of memory with which a model runs, in bytes. Experts in host memory are counted once;
// with more memory, some are stored twice if CPU and GPU read different forms.
type Least struct {
	Host       int64 `json:"host"`        // host memory, with these GPUs
	Device     int64 `json:"device"`      // memory of each GPU, if all experts are in host memory; at most Whole
	DeviceHost int64 `json:"device_host"` // host memory, if each GPU has Device bytes
	Whole      int64 `json:"whole"`       // memory of each GPU, if no experts are in host memory
}

// Speed is the expected speed of a step.
type Speed struct {
	What   string    `json:"what"`
	Tokens float64   `json:"tokens_per_second"`
	Step   *Estimate `json:"step"`
}

// Fit is the placement of a model on a machine, and its expected speed. It is computed without running the model.
type Fit struct {
	Model   string            `json:"model"`
	Machine string            `json:"machine"`
	GPUs    int               `json:"gpus"`
	Device  []Part            `json:"device"` // parts of the memory of each GPU
	Host    []Part            `json:"host"`
	Memory  [2]int64          `json:"memory"` // bytes of each GPU, and of the host
	Least   Least             `json:"least"`
	Experts *placement.Choice `json:"experts"`
	Speeds  []Speed           `json:"speeds"`
	// Assumed lists the assumptions about the sizes of missing weights; empty if the sizes are known.
	Assumed string `json:"assumed,omitempty"`
	Stated  string `json:"stated,omitempty"` // Machine.Stated
	// Untimed is the reason why there are no speeds; empty if there are speeds.
	Untimed string `json:"untimed,omitempty"`
}

// Fit returns the placement of the model on the machine, or an error with the missing memory.
func (q *Question) Fit() (*Fit, error) {
	m, e := &q.Machine, expertsOf(q.Model)
	if q.Usage != nil && m.GPUs > 1 {
		return nil, fmt.Errorf("%s on %s: experts are placed by use only on a single GPU; omit "+
			"--usage", q.Name, q.Asked)
	}
	if q.Usage != nil {
		c := q.Model.Common()
		if err := q.Usage.Fits(string(c.Family), len(e.layers), e.most(), int(e.chosen)); err != nil {
			return nil, err
		}
	}
	if err := cuda.CheckExperts(e.most()/m.GPUs, int(e.hidden), int(e.inner)); err != nil {
		return nil, fmt.Errorf("%s on %s: %w", q.Name, q.Asked, err)
	}
	facts, err := family.Facts(q.Model)
	if err == nil {
		facts, err = facts.Divide(m.GPUs, plan.ByHeads)
	}
	if err != nil {
		return nil, err
	}
	hw, err := plan.HardwareFor(m.Arch.String())
	if err != nil {
		return nil, err
	}
	cfg, _, err := plan.Resolve(hw, facts, plan.Policy{KV: "fp8"})
	if err != nil {
		return nil, err
	}
	each, rest := int64(bytesOf(q.Format, e.values())), restBytes(q.Model, facts.Heads, m.GPUs)
	if q.Weights.Expert > 0 {
		each = q.Weights.Expert
		if alone, err := family.Facts(q.Model); err == nil { // ranks divide all types in the same way
			rest = int64(float64(rest) * float64(q.Weights.Rest) / float64(restBytes(q.Model, alone.Heads, 1)))
		}
	}
	tables := tableBytes(q.Model)
	memory := m.GPU.MemoryBytes
	switch {
	case q.DeviceBytes > memory:
		return nil, fmt.Errorf("%s on %s: --gpu-memory %s is more than the %s of the GPU; omit it, or give a larger "+
			"GPU, such as \"h200,128G,memory=300G\"", q.Name, q.Asked, unit.Bytes(q.DeviceBytes),
			unit.Bytes(memory))
	case q.DeviceBytes > 0:
		memory = q.DeviceBytes
	}
	parts := []Part{
		{"weights other than experts", rest, "attention, shared experts, routers, vocabulary"},
		{"cache", cacheBytes(q.Model), fmt.Sprintf("%d sequences of %d tokens", Sequences, Tokens)},
		{"largest step", int64(rowBytes(q.Model, facts.Heads) * Chunk), fmt.Sprintf("%d rows of a prompt", Chunk)},
		{"operations", int64(e.chosen*(e.inner+e.hidden)*2*Chunk) / int64(m.GPUs), "results of its experts"},
		{"graphs and driver", graphBytes + driverBytes, ""},
	}
	layers := make([]int, len(e.layers))
	for l := range layers {
		layers[l] = e.layers[l] / m.GPUs
	}
	ask := placement.Ask{Layers: layers, Chosen: int(e.chosen), Ranks: m.GPUs, Bytes: each,
		Format: q.Format, Shared: q.Shared, Type: q.Weights.Type,
		Host: max(m.CPU.MemoryBytes-hostBytes-tables, 0) / int64(m.GPUs), Machine: m.Machine, Chunk: Chunk,
		Usage: q.Usage, Unused: len(e.layers) - q.Model.Common().Layers, Rows: Sequences}
	ask.Device = memory
	taken := int64(0)
	for _, p := range parts {
		taken += p.Bytes
	}
	ask.Device -= taken
	all := int64(e.count()/m.GPUs) * each
	if all > ask.Device {
		ring := Part{"buffers of experts", ringExperts * each, fmt.Sprintf("%d experts, for those that come from host "+
			"memory", ringExperts)}
		parts = append(parts, ring)
		ask.Device -= ring.Bytes
		spare := min(m.GPU.MemoryBytes/64, spareBytes)
		if free := memory - (m.GPU.MemoryBytes - spare); free > 0 { // 0 or less if DeviceBytes leaves enough free
			parts = append(parts, Part{"left free", free, "the driver takes memory in pieces of 2 MiB"})
			ask.Device -= free
		}
	}
	least := Least{Host: hostBytes + tables, DeviceHost: hostBytes + tables + all*int64(m.GPUs), Whole: taken + all,
		Device: taken + ringExperts*each}
	least.Device += min(least.Device/63+1, spareBytes) // a 64th of a GPU's memory is left free
	if least.Device >= least.Whole {                   // buffers for fetched experts would exceed all experts
		least.Device, least.DeviceHost = least.Whole, hostBytes+tables
	}
	if all > ask.Device {
		least.Host += (all - max(ask.Device, 0)/each*each) * int64(m.GPUs)
	}
	if tables > 0 && tables+hostBytes > m.CPU.MemoryBytes {
		return nil, fmt.Errorf("%s on %s: the n-gram tables take %s of the host's memory, and the system %s, together "+
			"more than the host's %s; %s", q.Name, q.Asked, unit.Bytes(tables), unit.Bytes(hostBytes),
			unit.Bytes(m.CPU.MemoryBytes), q.enough(&least))
	}
	choice, err := placement.Choose(ask)
	if err != nil {
		return nil, q.missing(err, parts, memory, &least)
	}
	onHost := choice.Experts - choice.Resident
	parts = append(parts, Part{"experts", choice.DeviceBytes, fmt.Sprintf("%d of %d", choice.Resident, choice.Experts)})
	f := &Fit{Model: q.Name, Machine: q.Asked, GPUs: m.GPUs, Stated: m.Stated,
		Memory: [2]int64{memory, m.CPU.MemoryBytes}, Least: least,
		Experts: choice, Device: parts, Host: []Part{
			{"experts", choice.HostBytes * int64(m.GPUs), fmt.Sprint(onHost * m.GPUs)},
			{"system and process", hostBytes, "assumed"}}}
	if tables > 0 {
		f.Host = append(f.Host, Part{"n-gram tables", tables, "rows are read over the bus"})
	}
	if err := measured(q.Model); err != nil {
		f.Untimed = err.Error()
		return f, nil
	}
	s := &split{ask: ask, placement: choice.Placement, ranks: float64(m.GPUs)}
	f.speeds(q, &cfg, s)
	return f, nil
}

// upGiB returns bytes in GiB, rounded up to a tenth, so that the result is always sufficient.
func upGiB(bytes int64) string {
	return fmt.Sprintf("%.1f GiB", math.Ceil(float64(bytes)/(1<<30)*10)/10)
}

// enough returns the suggestion for a machine with too little host memory.
func (q *Question) enough(l *Least) string {
	return fmt.Sprintf("give the host at least %s, such as \"%s,%.0fG\", or use more GPUs", upGiB(l.Host),
		gpuName(q.Asked), math.Ceil(float64(l.Host)/(1<<30)))
}

// missing adds the parts of the device's memory to the error if the model does not fit.
func (q *Question) missing(err error, parts []Part, memory int64, l *Least) error {
	if !errors.Is(err, placement.ErrNoRoom) {
		return err
	}
	text := ""
	for _, p := range parts {
		text += fmt.Sprintf(", %s %s", p.Name, unit.Bytes(p.Bytes))
	}
	advice := q.enough(l)
	if !errors.Is(err, placement.ErrHost) {
		advice = fmt.Sprintf("a GPU needs at least %s if its host has %s for the experts; use larger or more GPUs",
			upGiB(l.Device), upGiB(l.DeviceHost))
	}
	if memory < q.Machine.GPU.MemoryBytes {
		advice = "try a larger --gpu-memory; otherwise " + advice
	}
	return fmt.Errorf("%s on %s: %w (each GPU has %s%s); %s", q.Name, q.Asked, err, unit.Bytes(memory), text, advice)
}

// speeds estimates decode throughput for one sequence and for Sequences sequences, and prefill throughput.
func (f *Fit) speeds(q *Question, cfg *plan.Config, s *split) {
	add := func(what string, tokens float64, requests ...plan.Request) {
		var b plan.Batch
		for _, r := range requests {
			r.Logits = 1
			b.Add(r)
		}
		e := estimate(q.Model, cfg, &b, &q.Machine, s)
		f.Speeds = append(f.Speeds, Speed{What: what, Tokens: tokens / e.Millis * 1000, Step: e})
	}
	many := make([]plan.Request, Sequences)
	for i := range many {
		many[i] = plan.DecodeRequest(Tokens)
	}
	add("decode, batch 1", 1, many[0])
	add(fmt.Sprintf("decode, batch %d", Sequences), Sequences, many...)
	add(fmt.Sprintf("a prompt of %d tokens in one step", Chunk), Chunk, plan.ExtendRequest(Chunk, 0))
}

// restBytes returns the bytes of weights other than experts on each GPU, with the given number of heads.
func restBytes(d config.Description, heads, gpus int) int64 {
	switch c := d.(type) {
	case *config.DSA:
		return int64(dsaRest(c, float64(heads), float64(gpus)))
	case *config.V4:
		return int64(v4Rest(c, float64(heads), float64(gpus)))
	case *config.V41:
		return int64(v41Rest(c, float64(heads), float64(gpus)))
	case *config.Next: // GLM-5.3-Flash is estimated only on one GPU
		return int64(nextRest(c))
	}
	return 0
}

// cacheBytes returns the memory of the cache on each GPU for the planned sequences. Caches are not divided among ranks.
func cacheBytes(d config.Description) int64 {
	switch c := d.(type) {
	case *config.DSA:
		token := (c.Layers + c.NextN) * layout.BlockRowBytes
		for l := range c.Layers + c.NextN {
			if c.Indexer.Computes(l) {
				token += layout.IndexFP8{}.TokenBytes()
			}
		}
		return int64(token) * Sequences * Tokens
	case *config.V4:
		const page = layout.V4PageSize
		s := v4.SizesOf(c, layout.V4Packed{}, layout.IndexFP8{}, page)
		windows := kv.Window{Pages: 1, Tokens: c.Attention.Window}.PerSequence(page)
		return Sequences * (s.Page*(Tokens/page+1) + int64(windows)*s.Window + s.State)
	case *config.V41:
		return v41Cache(c)
	case *config.Next:
		return nextCache(c)
	}
	return 0
}

// rowBytes returns the approximate memory of a step for each row of a prompt: residual rows, and the tensors of a
// layer's attention for the given number of heads.
func rowBytes(d config.Description, of int) float64 {
	heads := float64(of)
	index := func(x config.Indexer) float64 { return float64(3*x.Heads*x.Dim + 8*x.TopK) }
	switch c := d.(type) {
	case *config.DSA:
		a := c.Attention
		return 2*4*float64(c.Hidden) + 2*heads*float64(a.QK()+2*(a.Latent+a.Rope)+2*a.V) + 2*float64(a.QLora) +
			index(c.Indexer)
	case *config.V4:
		a := c.Attention
		groups := heads / float64(a.Heads/a.Groups)
		streams, raw := 2*2*float64(c.Hyper.Streams*c.Hidden), 4*2*2*float64(a.Dim+layout.IndexDim)
		return streams + 2*4*float64(c.Hidden) + 2*2*heads*float64(a.Dim) + 2*groups*float64(a.OLora) + raw +
			index(c.Indexer)
	case *config.V41:
		return v41Row(c, heads)
	case *config.Next:
		return nextRow(c)
	}
	return 0
}

// Print writes the placement with the sums of its parts.
func (f *Fit) Print(w io.Writer) error {
	if f.Assumed != "" {
		fmt.Fprintf(w, "sizes are assumed: %s\n", f.Assumed)
	}
	fmt.Fprintf(w, "%s on %s. This is an estimate from measured times of single kernels and rates (docs/gpu.md); "+
		"nothing was run.\n", f.Model, f.Machine)
	if f.Stated != "" {
		fmt.Fprintln(w, f.Stated)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	where := "the GPU"
	if f.GPUs > 1 {
		where = fmt.Sprintf("each of %d GPUs", f.GPUs)
	}
	list := func(title string, parts []Part, of int64) {
		sum := int64(0)
		for _, p := range parts {
			sum += p.Bytes
		}
		fmt.Fprintf(t, "%s: %s of %s\n", title, unit.Bytes(sum), unit.Bytes(of))
		for _, p := range parts {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", p.Name, unit.Bytes(p.Bytes), p.Note)
		}
	}
	list("memory of "+where, f.Device, f.Memory[0])
	if f.Experts.HostBytes > 0 || len(f.Host) > 2 {
		list("memory of the host", f.Host, f.Memory[1])
	}
	fmt.Fprintln(t, "least memory")
	each, these, hold := "the GPU", "this GPU", "it holds"
	if f.GPUs > 1 {
		each, these, hold = "each GPU", "these GPUs", "they hold"
	}
	stored := "experts of the host are stored once"
	if f.Experts.Resident == f.Experts.Experts {
		stored = hold + " all experts"
	}
	fmt.Fprintf(t, "  host\t%s\twith %s; %s\n", upGiB(f.Least.Host), these, stored)
	if f.Least.Device < f.Least.Whole {
		fmt.Fprintf(t, "  %s\t%s\tif the host has %s and holds all experts\n", each, upGiB(f.Least.Device),
			upGiB(f.Least.DeviceHost))
	}
	fmt.Fprintf(t, "  %s\t%s\tif the host holds no experts\n", each, upGiB(f.Least.Whole))
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nexperts")
	for _, r := range f.Experts.Reasons {
		fmt.Fprintf(w, "  %s\n", r)
	}
	if f.Untimed != "" {
		fmt.Fprintf(w, "\n%s\n", f.Untimed)
	}
	for _, s := range f.Speeds {
		fmt.Fprintf(w, "\n%s: %.0f tokens/s, %.2f ms a step\n", s.What, s.Tokens, s.Step.Millis)
		if err := s.Step.table(w); err != nil {
			return err
		}
	}
	return nil
}
