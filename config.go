package sparrow

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/usage"
	"sparrow/internal/spec"
	"sparrow/kernel"
	"sparrow/plan"
)

// Config is everything Open needs. The zero value opens the built-in model with defaults.
type Config struct {
	// Model is a checkpoint folder; empty is the model inside the binary.
	Model string
	// Source is a checkpoint that is open already, in place of Model; it is closed with the engine. It has no
	// tokenizer: such a model reads and writes tokens.
	Source *family.Source
	// Name is the model's name in the API; empty takes the folder's name.
	Name string
	// Kernels names the implementation: AutoKernels ("auto", also when empty) takes a GPU that can run the model and
	// the CPU where there is none, "cpu" the best of this machine, "cuda" a GPU or an error; others are listed by
	// 'sparrow version'. The same prompt may be answered with other words on another kind of device, because sums
	// round differently: a program that compares answers names one.
	Kernels string
	Workers int // CPU threads; 0 means one for each core
	// Ranks is the number of devices that share the model: each has a part of its heads, experts and vocabulary, and
	// of the threads. 0 and 1 are one device. Several ranks run on CPUs; answers differ from those of one in rounding.
	Ranks int
	// Attention is how ranks share attention: by heads (plan.ByHeads), so that each holds the whole cache, or by
	// requests (plan.ByRequests), so that each holds the pages of its own sequences and all of them together Ranks
	// times as many tokens. Unset, heads are divided where their number allows it.
	Attention plan.Division
	// RankTimeout is how long a rank may stay at one operation while others wait for it, before all of them are
	// dropped; 0 is group.Timeout, below 0 forever.
	RankTimeout time.Duration
	// GPUs are the GPUs of the ranks, one for each, in place of Ranks; one that is named twice has two ranks.
	GPUs   []int
	Device int // ordinal of the GPU, where the kernels are for GPUs
	// Limits make that GPU behave like a smaller one; the zero value limits nothing.
	Limits kernel.Limits
	// Pack copies the weights at load to memory that is fast to read: on huge pages, on cache lines, spread over memory
	// nodes. It takes as much memory as the weights do, and changes no answer. It is for a CPU: AutoKernels then takes
	// no GPU.
	Pack bool
	// NUMA keeps CPU threads on the processors of their memory node, and copies the weights, as Pack does, with the
	// rows that a thread reads on its node. On a machine with one node it does nothing and calls Warn.
	NUMA bool
	// Precise multiplies float32 activations whole on a CPU, which is slower: bf16 and FP8 weights do not take them as
	// two bf16 parts, nor block formats of GGUF files as eight bits.
	Precise bool
	// Policy is the user's settings for attention and the cache. Its empty KV is fp8 on a GPU, bf16 on a CPU.
	Policy plan.Policy

	// Draft is whether tokens are drafted with the model's drafting layers and verified several at a time, which
	// changes no answer. The zero value drafts what pays where the checkpoint has the layer.
	Draft spec.Setting

	// DraftAccept, above 0, makes this share of all drafts count as right, whatever the model computes: answers are
	// then meaningless. It is for benchmarks of models with random weights.
	DraftAccept float64
	// CacheTokens is the size of the cache, of each rank's where these have their own pages; 0 sizes it by memory. It
	// is rounded up to whole pages. One that the machine cannot hold is refused.
	CacheTokens int
	// ContextTokens bounds one sequence; 0 means the model's own limit, or the cache's where that is smaller.
	ContextTokens int
	// StepTokens bounds the new tokens of one step; 0 means 512, on a GPU 8192.
	StepTokens int
	// MaxRunning bounds the sequences in a batch; 0 means 64, on a GPU 256, and never more than StepTokens run, so
	// that each gets a token in every step.
	MaxRunning int
	// MaxQueue bounds the sequences that wait; 0 means 2048.
	MaxQueue int
	// MaxStall is the longest time that prompts may delay running streams: while there are any, prompts are cut into
	// chunks by how long steps were measured to take, and on a CPU streams run between the operations of a chunk. 0
	// means 100 ms, on a GPU 50 ms; below 0 means no bound. It changes no answer.
	MaxStall time.Duration
	// NoReuse turns prefix reuse off.
	NoReuse bool
	// NoGraphs runs every pass with plain launches, on a GPU that could run captured ones. The watchdog then sees which
	// stage a pass is in. It changes no answer.
	NoGraphs bool
	// NoOverlap forms every batch when the previous one has ended, on a GPU that could compute meanwhile. It changes no
	// answer.
	NoOverlap bool
	// Experts names the memories that may hold experts, on a GPU; empty means ExpertsAuto.
	Experts ExpertHomes
	// DeviceMemory bounds what is used of a GPU's memory where experts are split; 0 is all that is free.
	DeviceMemory int64
	// ExpertUsage names a file with counts of how often rows choose each expert: read where it exists, and saved every
	// minute and when the engine closes. Empty counts nothing.
	ExpertUsage string
	// PadStates pads decode batches of models that keep states (DeepSeek-V4) on a GPU, so that batches of similar sizes
	// share a captured graph. It changes no answer.
	PadStates bool
	// RecordBytes bounds the recorded rows of one request (Request.Record), in bytes as they are sent; 0 means
	// 64 MiB. Below 0 nothing is recorded or replayed, and passes have no memory for it.
	RecordBytes int64
	// Tiers keep pages of the prefix cache outside the device: in host memory, in files, in a store that servers share.
	Tiers tier.Options
	// PlanHistory is how many plans are kept for inspection; 0 means 64.
	PlanHistory int

	// SelfTest is when the forms of attention are compared on the weights before the engine opens; a difference is an
	// error that wraps ErrSelfTest.
	SelfTest SelfTest
	// Watchdog is how long one forward pass may take: then the operation it has come to is logged, and Stats.Device
	// has it. 0 means a minute, below 0 no watchdog.
	Watchdog time.Duration

	// CacheEvents, when set, is called by the engine's goroutine when pages of the prefix cache become reusable or stop
	// being reusable.
	CacheEvents prefix.Listener

	// ChatFormat forces a chat format by name; empty detects it.
	ChatFormat string
	// PromptsOnly opens a model for prompts: a chat template that cannot be used is then no error of Open, but of a
	// chat.
	PromptsOnly bool
	// ControlTokens lets messages and tools of chats hold control tokens: <｜User｜> in a message begins a turn. Without
	// it, text that is spelled like a control token is plain text, except in an assistant message that the model
	// continues with. Prompts that are plain text may hold control tokens in any case.
	ControlTokens bool
	// Log receives the engine's messages; nil discards them.
	Log *slog.Logger
	// Warn is called with the reason why a GPU that is there is not used (AutoKernels); nil logs it.
	Warn func(text string)
	// OnLoad is called as weights load, with how many of their bytes are done.
	OnLoad func(done, total int64)
	// Substitute, when set, returns the model that runs instead of the loaded one, over the same tokenizer and chat
	// format: one that plays replies, for tests of clients (internal/sim/script).
	Substitute func(loaded model.Model) (model.Model, error)

	defaults []string // values that the device chose, as flags
	placed   string   // what ExpertsAuto came to on a GPU
	reserved int64    // memory of a device for its operations
	usage    *usage.Table
}

// Bounds of Config. They keep sums of sizes within an integer and the number of threads within the limit of a system;
// the cache is bounded by memory.
const (
	// MaxWorkers is the maximum number of CPU threads.
	MaxWorkers = 4096
	// MaxCount is the maximum of every other size except CacheTokens.
	MaxCount = math.MaxInt32
)

// negative is the error of a size below 0, and nil of any other.
func negative(name string, v int64) error {
	if v >= 0 {
		return nil
	}
	return fmt.Errorf("%s is %d, want 0 (the default) or more", name, v)
}

// Validate reports every problem at once.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name    string
		v, most int
	}{{"CacheTokens", c.CacheTokens, math.MaxInt}, {"ContextTokens", c.ContextTokens, MaxCount},
		{"StepTokens", c.StepTokens, MaxCount}, {"MaxRunning", c.MaxRunning, MaxCount},
		{"MaxQueue", c.MaxQueue, MaxCount}, {"Workers", c.Workers, MaxWorkers},
		{"Device", c.Device, MaxCount}, {"Ranks", c.Ranks, group.MaxRanks}, {"PlanHistory", c.PlanHistory, MaxCount}} {
		switch {
		case f.v < 0:
			errs = append(errs, fmt.Errorf("%s is %d, want 0 (the default) or more", f.name, f.v))
		case f.v > f.most:
			errs = append(errs, fmt.Errorf("%s is %d, want at most %d", f.name, f.v, f.most))
		}
	}
	if _, err := device.ParseExpertHomes(string(c.Experts)); err != nil || c.DeviceMemory < 0 {
		errs = append(errs, errors.Join(err, negative("DeviceMemory", c.DeviceMemory)))
	}
	if c.Experts == ExpertsMove && c.Policy.Deterministic {
		errs = append(errs, errors.New("experts move (--experts move) cannot be combined with Deterministic "+
			"(--deterministic): an expert that moves is computed with other rounding; ask for split"))
	}
	if c.Experts.Split() && max(c.Ranks, len(c.GPUs)) > 1 {
		errs = append(errs, fmt.Errorf("experts %s cannot run on %d ranks; experts in two memories need a single GPU",
			c.Experts, max(c.Ranks, len(c.GPUs))))
	}
	if c.Limits.Any() && max(c.Ranks, len(c.GPUs)) > 1 {
		errs = append(errs, fmt.Errorf("limits (--pretend, --limit-...) cannot be combined with %d ranks; only a "+
			"single GPU can be limited", max(c.Ranks, len(c.GPUs))))
	}
	if c.Ranks > 1 && len(c.GPUs) > 0 {
		errs = append(errs, fmt.Errorf("both Ranks %d and GPUs %v are given; give one of them", c.Ranks, c.GPUs))
	}
	if len(c.GPUs) > group.MaxRanks || slices.ContainsFunc(c.GPUs, func(n int) bool { return n < 0 }) {
		errs = append(errs, fmt.Errorf("GPUs is %v, want up to %d device numbers, each 0 or more", c.GPUs,
			group.MaxRanks))
	}
	if t := &c.Tiers; t.HostBytes < 0 || t.DiskBytes < 0 || t.Wait < 0 {
		errs = append(errs, fmt.Errorf("negative values in Tiers: %d bytes of host memory, %d of files, a wait of %v; "+
			"want 0 or more", t.HostBytes, t.DiskBytes, t.Wait))
	}
	if !(c.DraftAccept >= 0 && c.DraftAccept <= 1) {
		errs = append(errs, fmt.Errorf("DraftAccept is %v, want a share from 0 (drafts are compared) to 1",
			c.DraftAccept))
	}
	if c.NUMA && c.Ranks > 1 {
		errs = append(errs, fmt.Errorf("NUMA (--numa) divides the threads of one device, and Ranks (--ranks) is %d; "+
			"give one of both", c.Ranks))
	}
	if c.Policy.Speculation != (plan.Speculation{}) {
		errs = append(errs, fmt.Errorf("Policy.Speculation is %+v, want it unset; set Draft instead",
			c.Policy.Speculation))
	}
	if c.Policy.Running != 0 {
		errs = append(errs, fmt.Errorf("Policy.Running is %d, want it unset; set MaxRunning instead",
			c.Policy.Running))
	}
	if len(errs) > 0 {
		return fmt.Errorf("sparrow: config: %w", errors.Join(errs...))
	}
	return nil
}
