package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/builtin"
	"sparrow/engine"
	"sparrow/internal/device/group"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/model/family"
	"sparrow/internal/unit"
)

// engineFlags holds the flags for the model and its use of the machine. All commands that open a model share them.
type engineFlags struct {
	policyFlags
	deviceFlags
	model, name, chatFormat           string
	cacheTokens, context, stepTokens  int
	maxRunning, maxQueue, planHistory int
	rankFlags
	rankTimeout                    time.Duration
	recordBytes                    int64
	noPrefixCache                  bool
	noGraphs, noOverlap, padStates bool
	expertUsage                    string
	expertFlags
	controlTokens, selfTest string
	watchdog                time.Duration
	maxStall                string

	events prefix.Listener // listener of the prefix cache; set by serve
	drawn  *family.Source  // model with random weights, used instead of model; set by bench serve
	noChat bool            // no chat is requested, so that the chat template is not needed; set by run
	tierFlags
}

func (f *engineFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.model, "model", "",
		"checkpoint folder, GGUF file, or the name of a pulled model such as deepseek-ai/DeepSeek-V3.2; without it "+
			"the built-in small model runs ("+builtin.Name+")")
	s.StringVar(&f.chatFormat, "chat-format", "", "chat format, instead of the checkpoint's own: "+
		"deepseek-v4.1, deepseek-v4, deepseek-v4-preview (releases of April 2026), deepseek-v3.2, "+
		"deepseek-v3.1, glm-5, glm-5.2, glm-5.3-flash, kimi-k2, kimi-k2.5 or template")
	f.deviceFlags.add(s)
	f.rankFlags.add(s)
	s.DurationVar(&f.rankTimeout, "rank-timeout", group.Timeout, "maximum time that a rank may spend in one "+
		"operation while the other ranks wait for it; then all ranks are aborted. 0 means no limit")
	s.IntVar(&f.cacheTokens, "cache-tokens", 0, "size of the KV cache in tokens, rounded up to pages; 0 means four "+
		"full contexts, at most a quarter of the free memory, and on a GPU the memory that weights and steps do not "+
		"need")
	s.IntVar(&f.context, "context", 0,
		"longest sequence in tokens; 0 means the model's own limit, or the size of the cache if that is smaller")
	s.IntVar(&f.stepTokens, "step-tokens", 0,
		"maximum number of new tokens of one step: longer prompts are cut into chunks of this size; 0 means 512, on a "+
			"GPU 8192")
	s.BoolVar(&f.noPrefixCache, "no-prefix-cache", false, "disable the prefix cache: compute every prompt from its "+
		"first token")
	s.StringVar(&f.controlTokens, "control-tokens", "text",
		"how control tokens spelled in messages are treated: text, or allow to parse them as tokens")
	f.policyFlags.add(s)
	f.addDraft(s)
	s.BoolVar(&f.noGraphs, "no-graphs", false, "on a GPU, launch every operation instead of replaying captured "+
		"steps: slower, but the watchdog reports the stage of a hang")
	s.BoolVar(&f.noOverlap, "no-overlap", false,
		"on a GPU, form the next step after the previous one has ended instead of while it runs: slower, only for "+
			"comparisons")
	s.BoolVar(&f.padStates, "pad-states", false, "on a GPU, pad decode batches of DeepSeek-V4 to a few fixed sizes, "+
		"as for other models, so that they can share captured steps")
	f.expertFlags.add(s)
	s.StringVar(&f.expertUsage, "expert-usage", "", "`FILE` with counts of how often each expert is chosen: read "+
		"if it exists, saved every minute and at the end; 'sparrow inspect --usage' prints it")
	s.StringVar(&f.selfTest, "self-test", "auto", "compare sparse with dense attention on the weights before the "+
		"model opens, and do not open the model if they differ: auto (on a GPU, and on a CPU if the test is "+
		"quick), on, off")
	s.DurationVar(&f.watchdog, "watchdog", time.Minute,
		"log the current operation of a step that takes longer than this; 0 means never")
}

// addServing adds the flags that matter only for many concurrent requests.
func (f *engineFlags) addServing(s *pflag.FlagSet) {
	s.StringVar(&f.name, "name", "", "the model's name in the API; default the folder's name")
	s.IntVar(&f.maxRunning, "max-running", 0, "maximum number of sequences in a batch; 0 means 64, on a GPU 256")
	s.StringVar(&f.maxStall, "max-stall", "auto", "longest time that prompts may delay running streams, such as "+
		"50ms: prompts are cut into chunks accordingly; 0 means no limit, auto means 100ms, on a GPU 50ms")
	s.IntVar(&f.maxQueue, "max-queue", 0,
		"maximum number of sequences that wait; more are refused with status 429; 0 means 2048")
	s.IntVar(&f.planHistory, "plan-history", 0, "number of recent plans that the server keeps for /debug/plans; 0 "+
		"means 64")
	s.Int64Var(&f.recordBytes, "record-bytes", 0,
		"maximum bytes that one request may record of selections and experts "+
			"(\"sparrow\" in requests); 0 means 64 MiB, -1 records nothing")
	f.tierFlags.add(s)
}

// refuse returns an error that lists the given flags that configure the engine, because a remote server runs it. --name
// is allowed: it is the model's name in requests.
func (f *engineFlags) refuse(given *pflag.FlagSet) error {
	var own engineFlags
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.add(all)
	own.addServing(all)
	var wrong []string
	all.VisitAll(func(x *pflag.Flag) {
		if x.Name != "name" && given.Changed(x.Name) {
			wrong = append(wrong, "--"+x.Name)
		}
	})
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	them := "them"
	if len(wrong) == 1 {
		them = "it"
	}
	return fmt.Errorf("%s cannot change the server at --url; omit %s, or omit --url to run the model here",
		strings.Join(wrong, ", "), them)
}

// onlyWith returns an error if one of the named flags is given although the other flag, on which it depends, is not.
func onlyWith(given *pflag.FlagSet, there bool, other string, names ...string) error {
	for _, n := range names {
		if !there && given.Changed(n) {
			return fmt.Errorf("--%s has no effect without %s; add that, or omit it", n, other)
		}
	}
	return nil
}

// count is a numeric flag with an optional maximum.
type count struct {
	flag    string
	v, most int
}

// counted returns an error that names each flag whose number is out of range.
func counted(list ...count) error {
	var errs []error
	for _, c := range list {
		switch {
		case c.v < 0:
			errs = append(errs, fmt.Errorf("--%s %d: want 0 or more", c.flag, c.v))
		case c.most > 0 && c.v > c.most:
			errs = append(errs, fmt.Errorf("--%s %d: want at most %d", c.flag, c.v, c.most))
		}
	}
	return errors.Join(errs...)
}

// config returns the configuration that the flags select.
func (f *engineFlags) config() (sparrow.Config, error) {
	if err := f.sizes(); err != nil {
		return sparrow.Config{}, err
	}
	dir := f.model
	var err error
	if f.drawn == nil {
		dir, err = modelFolder(modelFlag, f.model)
	}
	if err != nil {
		return sparrow.Config{}, err
	}
	if f.controlTokens != "text" && f.controlTokens != "allow" {
		return sparrow.Config{}, fmt.Errorf("--control-tokens %s: want text or allow", f.controlTokens)
	}
	p, err := f.policy()
	if err != nil {
		return sparrow.Config{}, err
	}
	drafts, err := f.drafts()
	if err != nil {
		return sparrow.Config{}, err
	}
	test, err := engine.ParseSelfTest(f.selfTest)
	if err != nil {
		return sparrow.Config{}, fmt.Errorf("--%w", err)
	}
	if f.watchdog < 0 {
		return sparrow.Config{}, fmt.Errorf("--watchdog %v: want a positive time, or 0 for none", f.watchdog)
	}
	watchdog := f.watchdog
	if watchdog == 0 {
		watchdog = -1 // disabled; in the configuration, 0 means the default
	}
	if f.rankTimeout < 0 {
		return sparrow.Config{}, fmt.Errorf("--rank-timeout %v: want a positive time, or 0 for no limit", f.rankTimeout)
	}
	timeout := f.rankTimeout
	if timeout == 0 {
		timeout = -1
	}
	ranks, err := f.devices(f.kernels)
	if err != nil {
		return sparrow.Config{}, err
	}
	stall, err := f.stall()
	if err != nil {
		return sparrow.Config{}, err
	}
	limits, err := f.limits()
	if err != nil {
		return sparrow.Config{}, err
	}
	homes, memory, err := f.homes()
	if err != nil {
		return sparrow.Config{}, err
	}
	c := sparrow.Config{
		Experts: homes, DeviceMemory: memory, Limits: limits,
		CacheEvents: f.events, MaxStall: stall, SelfTest: test, Watchdog: watchdog,
		Model: dir, Source: f.drawn, Name: f.wireName(dir), Kernels: f.kernels, Device: f.gpu, Workers: f.workers,
		Pack: f.pack, NUMA: f.numa, Ranks: ranks.Count, GPUs: ranks.GPUs, Attention: ranks.Attention,
		RankTimeout: timeout,
		Precise:     f.precise, Policy: p, Draft: drafts,
		CacheTokens: f.cacheTokens, ContextTokens: f.context, StepTokens: f.stepTokens, MaxRunning: f.maxRunning,
		MaxQueue: f.maxQueue, NoReuse: f.noPrefixCache, NoGraphs: f.noGraphs,
		NoOverlap: f.noOverlap, PlanHistory: f.planHistory,
		ExpertUsage: f.expertUsage, PadStates: f.padStates,
		RecordBytes: f.recordBytes, ControlTokens: f.controlTokens == "allow",
		PromptsOnly: f.noChat, ChatFormat: f.chatFormat,
	}
	if c.Tiers, err = f.tiers(); err != nil {
		return sparrow.Config{}, err
	}
	return c, c.Validate()
}

// stall converts --max-stall to the value of the configuration, where 0 means the default and a negative value no
// limit.
func (f *engineFlags) stall() (time.Duration, error) {
	switch f.maxStall {
	case "auto":
		return 0, nil
	case "": // the command has no such flag
		return -1, nil
	}
	d, err := time.ParseDuration(f.maxStall)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("--max-stall %s: want a time such as 50ms, 0 for no limit, or auto", f.maxStall)
	}
	if d == 0 {
		d = -1
	}
	return d, nil
}

// sizes returns an error for numbers out of range. Whether the machine has enough memory for them is checked when the
// model is opened.
func (f *engineFlags) sizes() error {
	const most = sparrow.MaxCount
	if f.recordBytes < -1 {
		return fmt.Errorf("--record-bytes %d: want a number of bytes, 0 for the default, or -1 for none", f.recordBytes)
	}
	return counted(count{"workers", f.workers, sparrow.MaxWorkers}, count{"gpu", f.gpu, 0},
		count{"cache-tokens", f.cacheTokens, 0},
		count{"context", f.context, most}, count{"step-tokens", f.stepTokens, most},
		count{"max-running", f.maxRunning, most}, count{"max-queue", f.maxQueue, most},
		count{"plan-history", f.planHistory, most})
}

// open opens the model, with a progress bar on standard error if it takes long.
func (f *engineFlags) open(cmd *cobra.Command, log *slog.Logger) (*sparrow.Engine, error) {
	c, err := f.config()
	if err != nil {
		return nil, err
	}
	err = errors.Join(f.tierFlags.effects(cmd.Flags()),
		onlyWith(cmd.Flags(), c.Ranks > 1, "--ranks 2 or more", "rank-timeout"))
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr(), "loading weights")
	defer bar.end()
	c.Log = log
	c.Warn = func(text string) {
		bar.end()
		warnings(cmd)(text)
	}
	c.OnLoad = func(done, total int64) { bar.set(done, total, unit.Bytes(done)+" of "+unit.Bytes(total)) }
	e, err := sparrow.Open(cmd.Context(), c)
	if err == nil {
		bar.end()
		f.warnOfUnused(cmd, e.Info())
	}
	return e, err
}

// warnOfUnused warns about flags without effect on the chosen device. They are not errors, so that the same command
// runs with and without a GPU.
func (f *engineFlags) warnOfUnused(cmd *cobra.Command, i sparrow.Info) {
	if i.Memory.Device > 0 {
		return
	}
	for _, n := range []string{"no-graphs", "no-overlap", "pad-states"} {
		if cmd.Flags().Changed(n) {
			warnings(cmd)("--" + n + " has no effect on a CPU")
		}
	}
	f.warnOfWorkers(cmd)
}

// wireName returns the model's name in the API; empty means the name of the folder. For a pulled model it returns the
// hub name, because the folder is named after a commit.
func (f *engineFlags) wireName(dir string) string {
	if f.name != "" || dir == f.model {
		return f.name
	}
	repo, _, _ := strings.Cut(f.model, "@")
	return repo
}

// source returns the folder or file of the model, or a description of the built-in model.
func (f *engineFlags) source() string {
	dir, err := modelFolder("", f.model)
	switch {
	case dir == "" && err == nil:
		return "the built-in small model (--model DIR runs another)"
	case err != nil: // the folder was removed after it was opened
		return f.model
	}
	return dir
}

// closeNow closes an engine without waiting for requests that still run.
func closeNow(e *sparrow.Engine) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return e.Close(ctx)
}
