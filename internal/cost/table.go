package cost

// Contest holds the times of two methods for the same task and size.
type Contest struct {
	Size          int
	First, Second float64 // time of the first and of the second method, in milliseconds
}

// Choices holds times of alternative methods. If two methods give the same result, plans use the method that is faster
// by these times, and the reasons in plans contain the times. A test compares them with the documents.
type Choices struct {
	Device string
	// Kernels is the name of the kernels with these times: a device may have several.
	Kernels string
	// Prompts holds the times of one attention layer for whole prompts of DeepSeek-V3.2, in ascending order: number of
	// keys, and times of dense and of sparse attention, both without scores, averaged over bf16 and FP8 rows
	// (BenchmarkShortPrompt in internal/attn/mla). If empty, the dense form is used wherever it is exact.
	Prompts []Contest
	// V4 holds the times of attention in a layer of ratio 4 for whole prompts of DeepSeek-V4-Flash: number of rows, and
	// times with gathered entries and in place (BenchmarkPrompt in internal/attn/dual).
	V4 []Contest
	// Verify holds the times of scores of 8 rows of each request over 32,768 keys: number of rows of a group, and times
	// in groups and row by row (BenchmarkVerifyScores in kernel/cpu for one request; index_paged in internal/bench/cuda
	// for 64).
	Verify     Contest
	VerifiedOn string // machine on which Verify was measured, if it is not Device
	Verified   string // description of the case that Verify was measured for
	// Decodes holds the times of decode attention over 656-byte rows for each way to split them, ascending
	// (sparse_decode in internal/bench/cuda). It is empty if rows are not split.
	Decodes []Decode
	// Latent holds the times of decode attention of models without an indexer, over all of 8192 keys, ascending.
	Latent []LatentDecode
}

// LatentKeys is the number of keys of each row of Choices.Latent.
const LatentKeys = 8192

// LatentDecode holds the microseconds of the attention of some rows over LatentKeys keys each, split after every 512,
// 1024 or 2048 keys.
type LatentDecode struct {
	Rows                        int
	Keys512, Keys1024, Keys2048 float64
}

// Decode holds the times of decode attention for some number of rows over 2048 keys each, in microseconds: unsplit, and
// split after every 256 or 512 keys.
type Decode struct {
	Rows                    int
	Whole, Keys256, Keys512 float64
}

// DecodeHeads is the number of heads of the rows in Decode.
const DecodeHeads = 128

// Machine holds the figures measured on one machine.
type Machine struct {
	Choices
	GPU  GPU
	Link Link // connection between GPUs
	Bus  Bus  // connection of each GPU to the host
	CPU  Host // CPU of the host of the GPUs
}

// H200 returns the figures of a machine with H200s and a host of 16 cores; a CPU that computes alone is in XeonChoices.
func H200() Machine {
	return Machine{Choices: h200Choices(), GPU: h200(), Link: nvlink(), Bus: pcie5(), CPU: xeon16()}
}

func h200Choices() Choices {
	return Choices{
		Device: "an H200", Kernels: "Hopper kernels",
		Prompts: []Contest{{128, 0.0401, 0.0628}, {256, 0.0534, 0.108}, {512, 0.0919, 0.238}, {1024, 0.2, 0.604},
			{2048, 0.491, 1.72}},
		V4:     []Contest{{512, 0.0491, 0.0602}, {4096, 0.478, 0.696}, {13312, 1.64, 2.39}, {30720, 3.87, 5.64}},
		Verify: Contest{4, 0.235, 0.552}, Verified: "8 rows of each of 64 requests",
		Decodes: []Decode{{1, 75.5, 14.6, 21.1}, {4, 76.4, 19.7, 22.3}, {8, 76.7, 24.2, 25.5}, {16, 77.4, 36.2, 32.3},
			{32, 78.2, 62.9, 54.9}, {48, 79.7, 96.8, 85.5}, {64, 81.9, 117.1, 100.7}, {96, 155.3, 180.6, 154.5},
			{128, 155.4, 235.3, 201.6}},
		Latent: []LatentDecode{{1, 24, 36, 64}, {16, 103, 92, 86}, {64, 370, 334, 315}},
	}
}

// PortableChoices returns the times that were measured with the portable kernels, on an H200: decodes, but not whole
// rows.
func PortableChoices() Choices {
	return Choices{Device: "an H200", Kernels: "portable kernels",
		Decodes: []Decode{{Rows: 1, Keys256: 27, Keys512: 43}, {Rows: 16, Keys256: 73, Keys512: 62}}}
}

// XeonChoices returns the times that were measured on two cores of an Intel Xeon with AMX.
func XeonChoices() Choices {
	return Choices{
		Device: "two cores of a Xeon", Kernels: "AMX kernels",
		Prompts: []Contest{{128, 19.3, 52.3}, {256, 40.8, 103}, {512, 104, 253}, {1024, 238, 688}, {2048, 922, 2180}},
		V4:      []Contest{{512, 45.4, 45.4}, {4096, 752, 850}, {13312, 2886, 3441}, {30720, 6818, 8693}},
		Verify:  Contest{4, 9.5, 12.6}, VerifiedOn: "one core of a Xeon",
		Verified: "8 rows of a request",
	}
}

// GPU holds the rates and times of one GPU.
type GPU struct {
	Name        string
	MemoryBytes int64
	SMs         int     // multiprocessors
	Launch      float64 // microseconds of a GEMM or another kernel after a kernel that it overlaps with
	// GEMMs ("Products"): weights are read at a rate that decreases up to 64 rows; with many rows the time is bound by
	// arithmetic.
	Weights, FP8, BF16 float64
	Rows64             float64 // fraction by which 64 rows increase the time of reading weights
	// Experts is the time of all four launches, ExpertOps the rate of operations of FP8 experts, WideExpertOps that of
	// experts with bf16 rows (h200.md, "Experts").
	Experts, ExpertOps, WideExpertOps float64
	// Rates of e2m1 experts (docs/benchmarks/h200.md): of bytes with few rows, and of operations with the 192 rows of a
	// prompt per expert.
	NarrowExperts, NarrowExpertOps float64
	Choose, ChooseRow              float64 // microseconds to choose and sort, with launches; and for each row
	// Prompt is the microseconds of sparse attention for a prompt row with 128 heads, including gathering.
	Prompt   float64
	DenseOps float64 // operations per microsecond of dense attention
	// Attention of DeepSeek-V4 with 64 heads over 128 keys and 512: V4First is the time of a decode batch with one row,
	// V4Row the time of each further row, V4Prompt that of a prompt row, in microseconds.
	V4First, V4Row, V4Prompt float64
	// V4Launches is the counted number of launches of a DeepSeek-V4 layer, and V4Launch the time of a launch in
	// addition to the stages, chosen so that a step of one row takes the measured time (docs/benchmarks/h200.md, nine
	// layers).
	V4Launches, V4Launch float64
	// Indexer ("Indexer and selection"): decodes read keys of 132 bytes; prompts are bound by arithmetic.
	Keys, ScoreOps float64
	Pick, Scores   float64 // microseconds of a selection, and bytes of scores that a selection reads per microsecond
	// Rest and RestRow are the microseconds of all other operations of a layer: in total, and for each row: norms,
	// residual sums, quantisation, rotation, storing rows.
	Rest, RestRow float64
	Step          float64 // microseconds of a step outside layers
}

func h200() GPU {
	return GPU{
		Name: "H200", MemoryBytes: 139 << 30, SMs: 132,
		Launch: 1.8, Weights: 4.0e6, FP8: 1.1e9, BF16: 0.65e9, Rows64: 0.12,
		Experts: 4.45e6, ExpertOps: 1.0e9, WideExpertOps: 0.73e9, NarrowExperts: 3.2e6,
		NarrowExpertOps: 0.55e9, Choose: 14, ChooseRow: 0.02,
		Prompt: 0.92, DenseOps: 0.42e9, V4First: 8.2, V4Row: 0.22, V4Prompt: 0.119,
		V4Launches: 26, V4Launch: 1.5,
		Keys: 3.9e6, ScoreOps: 1.1e9, Pick: 5, Scores: 3.3e6,
		Rest: 18, RestRow: 0.22, Step: 40,
	}
}

// Link is the connection between GPUs.
type Link struct {
	Rate float64 // bytes per microsecond that a GPU receives
	Wait float64 // microseconds of an all-reduce without data: two launches with signals between GPUs
}

// nvlink returns the link of an HGX board with eight H200s, as published by its manufacturer; it was not measured.
func nvlink() Link { return Link{Rate: 0.45e6, Wait: 8} }

// Bus is the connection of a GPU to its host.
type Bus struct {
	Rate float64 // bytes per microsecond of copies of page-locked memory
	Wait float64 // microseconds to send rows to workers on the host and results back, without the time of the data
}

// pcie5 returns the bus of an H200: docs/gpu.md, "Loading". A copy of up to 64 KB with its synchronisation takes 17 us,
// half for each direction.
func pcie5() Bus { return Bus{Rate: 54e3, Wait: 17} }

// Format is the storage format of expert weights.
type Format uint8

const (
	BF16 Format = iota
	E4M3
	E2M1
)

func (f Format) String() string { return [...]string{"bf16", "e4m3", "e2m1"}[f] }

// Host holds the figures of the CPU of a GPU's host and of its memory.
type Host struct {
	Name        string
	Cores       int
	MemoryBytes int64
	Core        float64 // bytes per microsecond that one core reads from memory
	Stream      float64 // maximum bytes per microsecond that all cores read from memory
	// One and Sixteen are the fractions of Stream that matrix products with one row and with 16 rows reach, by format
	// ("Many cores").
	One, Sixteen [3]float64
	Dispatch     float64 // microseconds to start an operation on all workers
	// Inside is the fraction of that rate that experts on the host of a GPU reach, and Wait the microseconds that each
	// layer waits for them ("DeepSeek-V4-Flash at full size"). They were measured with e2m1 and one row: 5.5 ms for 17
	// experts and 120 ms for 476 experts are 54 GB/s after 85 us. Estimates of steps use these figures; placements do
	// not.
	Inside, Wait float64
}

// xeon16 returns the figures of 16 cores of an Intel Xeon with AMX, the host of an H200 (docs/benchmarks/record-cpu.md,
// "Many cores" and "Few rows"). The size of its memory is not part of the figures.
func xeon16() Host {
	return Host{
		Name: "16 cores of a Xeon with AMX", Cores: 16, Core: 18e3, Stream: 136e3, Dispatch: 4.8,
		Inside: 0.675, Wait: 85,
		One: [3]float64{0.84, 0.72, 0.59}, Sixteen: [3]float64{0.64, 0.55, 0.40},
	}
}

// Rate returns the rate at which the cores read weights of a format for the given number of rows. For more than 16
// rows, the time is bound by arithmetic and proportional to the number of rows.
func (h *Host) Rate(f Format, rows float64) float64 {
	share := h.One[f]
	if rows > 1 {
		share += (h.Sixteen[f] - h.One[f]) * (min(rows, 16) - 1) / 15
	}
	return min(float64(h.Cores)*h.Core, h.Stream) * share / max(rows/16, 1)
}
