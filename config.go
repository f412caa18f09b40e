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

// Config holds everything that Open needs. The zero value opens the built-in model with defaults.
type Config struct {
	// Model is a checkpoint folder; empty means the built-in model.
	Model string
	// Source is an open checkpoint, used instead of Model. Closing the engine closes it. A Source has no tokenizer, so
	// requests and answers are token ids.
	Source *family.Source
	// Name is the model's name in the API; if empty, it is the folder's name.
	Name string
	// Kernels selects the implementation. AutoKernels ("auto", also if empty) uses a GPU that can run the model, else
	// the CPU; "cpu" uses the fastest CPU kernels of this machine; "cuda" uses a GPU and fails without one; 'sparrow
	// version' lists other names. Answers to the same prompt may differ between kinds of devices, because sums are
	// rounded differently: a program that compares answers should set one name.
	Kernels string
	Workers int // CPU threads; 0 means one for each core
	// Ranks is the number of devices that share the model: each rank has a part of the model's heads, experts and
	// vocabulary, and a part of the threads. 0 and 1 mean one device. Several ranks run on CPUs; answers differ from
	// those of one device by rounding.
	Ranks int
	// Attention selects how ranks share attention: by heads (plan.ByHeads), so that each rank holds the whole cache, or
	// by requests (plan.ByRequests), so that each rank holds the pages of its own sequences, and together they hold
	// Ranks times as many tokens. By default attention is divided by heads if the number of heads is a multiple of
	// Ranks.
	Attention plan.Division
	// RankTimeout is the maximum time that ranks wait for another rank in one operation. After this time the group of
	// ranks fails and cannot be used again. 0 means group.Timeout, a negative value no limit.
	RankTimeout time.Duration
	// GPUs lists the ordinal of the GPU of each rank, instead of Ranks. A GPU that is listed twice has two ranks.
	GPUs   []int
	Device int // ordinal of the GPU, if the kernels run on a GPU
	// Limits limits the resources of that GPU, so that it behaves like a smaller one; the zero value limits nothing.
	Limits kernel.Limits
	// Pack copies the weights at load to memory that is fast to read: on huge pages, aligned to cache lines, spread
	// over memory nodes. It takes as much memory as the weights, and changes no answer. It is for a CPU: AutoKernels
	// then uses no GPU.
	Pack bool
	// NUMA keeps CPU threads on the processors of their memory node, and copies the weights, like Pack, so that each
	// thread reads weight rows from its own node. On a machine with one node it does nothing and calls Warn.
	NUMA bool
	// Precise uses full float32 activations in GEMMs on a CPU, which is slower. Otherwise GEMMs with bf16 and FP8
	// weights split activations into two bf16 parts, and GEMMs with block formats of GGUF files quantize them to eight
	// bits.
	Precise bool
	// Policy holds the user's settings for attention and the cache. If Policy.KV is empty, the cache is fp8 on a GPU
	// and bf16 on a CPU.
	Policy plan.Policy

	// Draft selects whether tokens are drafted with the model's drafting layers and verified several at a time, which
	// changes no answer. The zero value drafts adaptively if the checkpoint has drafting layers.
	Draft spec.Setting

	// DraftAccept, if above 0, is the share of drafts that are accepted regardless of the model's output. Answers are
	// then meaningless. It is for benchmarks of models with random weights.
	DraftAccept float64
	// CacheTokens is the size of the cache, or of each rank's cache if ranks have their own pages; 0 sizes it by
	// memory. It is rounded up to whole pages. A cache that does not fit the machine is refused.
	CacheTokens int
	// ContextTokens is the maximum length of one sequence; 0 means the model's own limit, or the cache's if that is
	// smaller.
	ContextTokens int
	// StepTokens is the maximum number of new tokens of one step; 0 means 512 on a CPU, 8192 on a GPU.
	StepTokens int
	// MaxRunning is the maximum number of sequences in a batch; 0 means 64 on a CPU, 256 on a GPU. It is limited by
	// StepTokens, so that every sequence gets a token in each step. If the plan computes prompts in groups of positions
	// (plan.Config.LinearGroup), it is limited by StepTokens less the size of a group plus one, so that a prompt gets a
	// group in each step.
	MaxRunning int
	// MaxQueue is the maximum number of waiting sequences; 0 means 2048 sequences.
	MaxQueue int
	// MaxStall is the maximum time that prompts may delay running streams: while streams run, prompts are divided into
	// chunks whose size follows the measured times of steps, and on a CPU streams run between the operations of a
	// chunk. 0 means 100 ms on a CPU, 50 ms on a GPU; a negative value means no limit. It changes no answer.
	MaxStall time.Duration
	// NoReuse disables prefix reuse.
	NoReuse bool
	// NoGraphs runs every pass with plain kernel launches, even on a GPU that supports CUDA graphs. The watchdog then
	// reports the stage of a pass. It changes no answer.
	NoGraphs bool
	// NoOverlap forms every batch after the previous one has ended. Otherwise, on a GPU, the host forms the next batch
	// while the GPU computes. It changes no answer.
	NoOverlap bool
	// Experts selects the memories that may hold experts, on a GPU; empty means ExpertsAuto.
	Experts ExpertHomes
	// DeviceMemory is the maximum GPU memory, in bytes, that is used if experts are split; 0 means all free memory.
	DeviceMemory int64
	// ExpertUsage is a file with counts of how often each expert was chosen. It is read if it exists, and written every
	// minute and when the engine closes. If it is empty, nothing is counted.
	ExpertUsage string
	// PadStates pads decode batches of models with sequence states (DeepSeek-V4) on a GPU, so that batches of similar
	// size can use the same CUDA graph. It changes no answer.
	PadStates bool
	// RecordBytes is the maximum size of the recorded rows of one request (Request.Record), in bytes as they are sent;
	// 0 means 64 MiB. A negative value disables recording and replay, and saves their memory.
	RecordBytes int64
	// Tiers configures the storage of prefix cache pages outside the device: in host memory, in files, in a store that
	// servers share.
	Tiers tier.Options
	// PlanHistory is the number of recent plans that Plans returns; 0 means 64.
	PlanHistory int

	// SelfTest selects when Open compares the attention kernels with each other on the model's weights. A difference is
	// an error that wraps ErrSelfTest.
	SelfTest SelfTest
	// Watchdog is the maximum time of one forward pass. If a pass takes longer, its current operation is logged and
	// reported in Stats.Device. 0 means a minute, a negative value disables the watchdog.
	Watchdog time.Duration

	// CacheEvents, if set, is called by the engine's goroutine when pages of the prefix cache become reusable or stop
	// being reusable.
	CacheEvents prefix.Listener

	// ChatFormat sets a chat format by name; empty means detection.
	ChatFormat string
	// PromptsOnly opens a model for plain prompts: if its chat template cannot be parsed, Open succeeds and chat
	// requests fail.
	PromptsOnly bool
	// ControlTokens makes control tokens that are spelled in messages and tools effective: <｜User｜> in a message begins
	// a turn. Otherwise they are plain text, except in an assistant message that the model continues. In prompts that
	// are not chats, control tokens are always effective.
	ControlTokens bool
	// Log receives the engine's log records; nil discards them.
	Log *slog.Logger
	// Warn is called with the reason why an existing GPU is not used (AutoKernels); if nil, the reason is logged.
	Warn func(text string)
	// OnLoad is called as weights load, with the number of bytes loaded so far and the total.
	OnLoad func(done, total int64)
	// Substitute, if set, returns the model that runs instead of the loaded one, with the same tokenizer and chat
	// format. Tests of clients use a model with scripted replies (internal/sim/script).
	Substitute func(loaded model.Model) (model.Model, error)

	defaults []string // defaults that depend on the device, each as a flag of the command line
	placed   string   // description of the placement that ExpertsAuto chose on a GPU
	reserved int64    // bytes of device memory reserved for scratch of operations and for graphs
	usage    *usage.Table
}

// Limits of Config. They prevent integer overflow in sums of sizes, and more threads than operating systems allow.
// CacheTokens is limited by memory instead.
const (
	// MaxWorkers is the maximum number of CPU threads.
	MaxWorkers = 4096
	// MaxCount is the maximum of every other integer size except CacheTokens.
	MaxCount = math.MaxInt32
)

// negative returns an error for a size below 0, otherwise nil.
func negative(name string, v int64) error {
	if v >= 0 {
		return nil
	}
	return fmt.Errorf("%s is %d, want 0 (the default) or more", name, v)
}

// Validate returns an error that lists all invalid fields, or nil.
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
			"(--deterministic): a moved expert is computed with other rounding; use split"))
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
		errs = append(errs, fmt.Errorf("DraftAccept is %v, want a share from 0 to 1; 0 compares drafts with the "+
			"target's tokens", c.DraftAccept))
	}
	if c.NUMA && c.Ranks > 1 {
		errs = append(errs, fmt.Errorf("NUMA (--numa) divides the threads of one device, but Ranks (--ranks) is %d; "+
			"give one of the two", c.Ranks))
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
