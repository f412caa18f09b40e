package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sparrow"
	"sparrow/builtin"
	"sparrow/internal/bench/model"
	"sparrow/internal/block"
	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/internal/device/host"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/numa"
	"sparrow/internal/textfile"
	"sparrow/kernel"
)

// benchModelFlags holds the flags of `sparrow bench model`.
type benchModelFlags struct {
	policyFlags
	deviceFlags
	memory, plot, against, write string
	attention                    string
	contexts, batches, prompts   []string
	chunk, ranks, maxRunning     int
	budget                       time.Duration
	seed                         uint64
	asJSON, markdown             bool
	dummy, profile               bool
	dummyExperts                 []string
	accept                       float64
	expertFlags
}

func benchModelCommand() *cobra.Command {
	var f benchModelFlags
	c := &cobra.Command{
		Use:   "model [DIR, GGUF file or SHAPE]",
		Short: "Time decode and prefill steps of a model at depths of context",
		Long: `Bench model measures decode steps and prefill chunks at several contexts and batch sizes, with the share of each stage:
the indexer's scan, selection, attention, products, the head and the rest. Contexts are not computed: the KV cache is
filled with random rows, and for DeepSeek-V4 the sequence state is that after a reused prefix. The measured steps are
complete forward passes. "step ms", tokens/s and the shares are those of the fastest step; the median of all steps and
their spread are printed next to it. Without a model the small one inside the binary is measured. Cases that do not fit
the memory are listed with the reason. With --draft, answers to a few questions are timed with drafts and without, one
at a time. For a model with a DSpark head, a draft pass and the step that verifies all its drafts are timed too.

With --dummy no files are read. SHAPE is a name from 'sparrow synth --help', a config.json or a folder with one. Its
weights are FP8 blocks as released, with random values that a GPU generates in its own memory. FP4 experts repeat a
random pattern of 8 MiB, and so do experts in the GGUF types of --dummy-experts. On a GPU "gap ms" is the part of a step
in which the GPU waits for the host. The launches of one more step are timed one by one, without overlapping.
"launches", "kernels ms" and the shares are those of this step. "kernels ms" is the sum of these times, with about a
microsecond for each launch.`,
		Example: `  sparrow bench model
  sparrow bench model /tmp/mini --contexts 512,8k,128k --batch 1
  sparrow bench model /tmp/mini --kv fp8 --plot cost.svg --json
  sparrow bench model --contexts 512 --draft auto
  sparrow bench model /tmp/mini --contexts 0,2k,4k,8k --batch 1 --against llama.jsonl
  sparrow bench model v32-slice --kernels cuda --dummy --profile`,
		Args: mostOneFolder,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, strings.Join(args, "")) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringSliceVar(&f.contexts, "contexts", nil,
		"tokens in the cache before the measured ones, with k for 1024; default 512,2k,8k,32k,128k, on a GPU 8k,32k")
	s.StringSliceVar(&f.batches, "batch", nil, "numbers of sequences; default 1,16, on a GPU 1,16,64,128")
	s.StringSliceVar(&f.prompts, "prompts", nil, "lengths of whole prompts, computed in chunks, instead of a chunk "+
		"after each context; 0 measures decodes alone; default on a GPU 8k,32k")
	s.IntVar(&f.chunk, "chunk", 0, "new tokens of a prefill step, divided among the sequences; 0 means 512, on a "+
		"GPU 8192")
	s.IntVar(&f.chunk, "step-tokens", 0, "same as --chunk")
	s.DurationVar(&f.budget, "budget", 0,
		"time for which the steps of one phase are repeated, at least one step; 0 means 2s, on a GPU 0.3s")
	s.BoolVar(&f.dummy, "dummy", false, "random weights of a named shape, without files")
	s.StringSliceVar(&f.dummyExperts, "dummy-experts", nil, "with --dummy, the GGUF type of experts, such as Q4_K, or "+
		"two: of gate and up, and of down, such as IQ2_XXS,Q2_K")
	s.BoolVar(&f.profile, "profile", false, "also print the time of every kernel of a step, on a CPU of every "+
		"operation")
	s.IntVar(&f.maxRunning, "max-running", 0, "maximum number of sequences in a batch of the server that is planned "+
		"for; it can change how the keys of a row are split. 0 means not given")
	f.deviceFlags.add(s)
	f.expertFlags.add(s)
	addRanks(s, &f.ranks)
	addAttention(s, &f.attention)
	s.StringVar(&f.memory, "memory", "0",
		"maximum memory of the cache, with K, M, G or T; 0 means three quarters of the free memory")
	s.StringVar(&f.against, "against", "",
		"file with results of llama-bench -o jsonl on the same model and depths, to compare with")
	s.StringVar(&f.plot, "plot", "", "file for a chart (SVG) of the time per token against the context")
	s.Uint64Var(&f.seed, "seed", 1, "seed of tokens and cache rows")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	s.BoolVar(&f.markdown, "markdown", false, "print tables for a document")
	s.StringVar(&f.write, "write", "", "document whose part between <!-- bench model NAME --> (with --against <!-- "+
		"bench compare NAME -->) and <!-- end --> becomes those tables")
	f.policyFlags.add(s)
	f.addDraft(s)
	s.Float64Var(&f.accept, "draft-accept", 0, "with --draft, decode every batch after every context with drafts of "+
		"which this share is accepted, and without, for models with random weights")
	return c
}

// options converts the flags to the options of the measurement.
func (f *benchModelFlags) options() (model.Options, error) {
	o := model.Options{Chunk: f.chunk, Budget: f.budget, Seed: f.seed, Threads: f.workers, Packed: f.pack,
		Precise: f.precise}
	var errs [7]error
	o.Attention, errs[6] = division(f.attention, f.ranks, "--ranks 2")
	o.Prompts, errs[5] = counts("--prompts", f.prompts)
	o.Contexts, errs[0] = counts("--contexts", f.contexts)
	o.Batches, errs[1] = counts("--batch", f.batches)
	if o.MemoryBytes, errs[2] = parseBytes(f.memory); errs[2] != nil {
		errs[2] = fmt.Errorf("bench model: --memory: %w", errs[2])
	}
	o.Policy, errs[3] = f.policy()
	o.Policy.Running = f.maxRunning
	_, errs[4] = f.drafts()
	if err := errors.Join(errs[:]...); err != nil {
		return o, err
	}
	if !(f.accept >= 0 && f.accept <= 1) || f.accept > 0 && (f.draft == "" || f.draft == "off") {
		return o, fmt.Errorf("bench model: --draft-accept %v: want a share from 0 to 1, with --draft auto or a number",
			f.accept)
	}
	if err := counted(count{"ranks", f.ranks, group.MaxRanks}, count{"workers", f.workers, sparrow.MaxWorkers},
		count{"chunk", f.chunk, 0}, count{"max-running", f.maxRunning, 0}); err != nil {
		return o, fmt.Errorf("bench model: %w", err)
	}
	if f.budget < 0 {
		return o, fmt.Errorf("bench model: --budget %v: want a positive time, or 0 for the default", f.budget)
	}
	if f.profile && f.ranks > 1 {
		return o, errors.New("bench model: --profile shows the operations of one device; omit it or --ranks")
	}
	if f.asJSON && f.markdown {
		return o, errors.New("bench model: --json and --markdown cannot be combined; give one")
	}
	if len(f.dummyExperts) > 0 && !f.dummy {
		return o, errors.New("bench model: --dummy-experts sets the type of random experts; give it together with " +
			"--dummy")
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	return o, nil
}

// counts parses whole numbers such as 512 or 8k, where k means 1024.
func counts(flag string, list []string) ([]int, error) {
	var out []int
	for _, s := range list {
		digits, k := strings.CutSuffix(strings.ToLower(s), "k")
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > 1<<30 {
			return nil, fmt.Errorf("%s: %q is not a whole number from 0 to %d; give one such as 512 or 8k",
				flag, s, 1<<30)
		}
		if k {
			n <<= 10
		}
		out = append(out, n)
	}
	return out, nil
}

func (f *benchModelFlags) run(cmd *cobra.Command, dir string) (err error) {
	if given := cmd.Flags(); given.Changed("chunk") && given.Changed("step-tokens") {
		return errors.New("bench model: --chunk and --step-tokens have the same meaning; give one")
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	peer, err := f.peer()
	if err != nil {
		return err
	}
	src, err := f.source(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	section := "bench model " + model.Title(src)
	if peer != nil {
		section = "bench compare " + model.Title(src)
	}
	if f.write != "" {
		if _, _, err := aroundSection(f.write, section); err != nil {
			return fmt.Errorf("bench model: %w", err)
		}
	}
	limits, err := f.limits()
	if err == nil && limits.Any() && f.ranks > 1 {
		err = errors.New("--pretend and --limit-... apply to one GPU; omit them or --ranks")
	}
	if err != nil {
		return fmt.Errorf("bench model: %w", err)
	}
	if f.draft == "" || f.draft == "off" {
		src.DropDrafts()
	}
	var nodes *numa.Machine
	if f.numa {
		if f.ranks > 1 {
			return fmt.Errorf("bench model: --numa divides the threads of one device, but --ranks is %d", f.ranks)
		}
		if nodes, err = numa.Several(warnings(cmd)); err != nil {
			return fmt.Errorf("bench model: %w", err)
		}
	}
	o.Mapped = !f.pack && nodes == nil && !f.dummy
	if f.pack || nodes != nil {
		if err := host.CheckPackSpace(src.Weights.Bytes()); err != nil {
			return fmt.Errorf("bench model: %w", err)
		}
	}
	q := device.Request{Kernels: f.kernels, Source: src, Policy: o.Policy,
		Options: kernel.Options{Workers: f.workers, Pack: f.pack, Precise: f.precise, Ordinal: f.gpu,
			NUMA: nodes, Limits: limits},
		Warn: warnings(cmd)}
	if f.ranks > 1 && f.kernels == sparrow.AutoKernels {
		q.Kernels = "cpu"
	}
	placed, err := f.place(&q, &o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, placed.Close()) }()
	var devs []kernel.Device
	for range max(f.ranks, 1) {
		q.Workers = max(o.Threads/max(f.ranks, 1), 1)
		dev, failed := device.Open(registry(), q)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		devs = append(devs, dev)
	}
	dev := devs[0]
	if dev.Hardware().Arch == "cpu" {
		f.warnOfWorkers(cmd)
	}
	o.Ranks, o.Experts = devs[1:], placed.Placed
	o.Policy, _ = device.PolicyOn(dev, src.Model, o.Policy)
	bar := newProgress(cmd.ErrOrStderr(), "steps")
	o.OnCell = func(done, total int, what string) { bar.set(int64(done), int64(total), what) }
	steps := o
	if m, ok := src.Model.(*config.V4); ok && m.DraftBlock() > 0 && f.draft != "" && f.draft != "off" {
		steps.Policy.Speculation.Tokens = m.DraftBlock() + 1 // passes with drafts are measured in addition to steps
	}
	r, err := model.Run(cmd.Context(), src, dev, steps)
	bar.end()
	if r != nil {
		r.Commit = revision()
		if placed.Choice != nil {
			r.Experts = placed.Choice.Reasons
		}
	}
	if err != nil {
		if r != nil { // if interrupted, print the results so far
			err = errors.Join(err, r.Print(cmd.OutOrStdout()))
		}
		return err
	}
	switch {
	case f.accept > 0:
		r.Accept, err = f.acceptDrafts(cmd, dir, o, r)
	case f.draft != "" && f.draft != "off":
		r.Drafts, err = f.measureDrafts(cmd, dir, o)
	}
	if err != nil {
		return err
	}
	if peer != nil {
		if err := r.Against(peer); err != nil {
			return err
		}
	}
	if f.plot != "" {
		if err := f.draw(r); err != nil {
			return err
		}
	}
	if f.write != "" {
		if err := writeSection(f.write, section, r.Markdown); err != nil {
			return fmt.Errorf("bench model: %w", err)
		}
	}
	switch {
	case f.asJSON:
		return writeJSON(cmd.OutOrStdout(), r)
	case f.markdown:
		return r.Markdown(cmd.OutOrStdout())
	}
	if err := r.Print(cmd.OutOrStdout()); err != nil || !f.profile {
		return err
	}
	return r.PrintKernels(cmd.OutOrStdout())
}

// source opens the model to measure. With --dummy it returns a model with random weights.
func (f *benchModelFlags) source(dir string) (*family.Source, error) {
	if !f.dummy {
		folder, err := modelFolder(benchModelFlag, dir)
		if err != nil {
			return nil, err
		}
		return modelSource(folder)
	}
	s, err := drawn(dir, f.seed, nil, f.dummyExperts)
	if err != nil {
		err = fmt.Errorf("bench model: --dummy: %w", err)
	}
	return s, err
}

// drawn returns a model with the named shape and random weights, which are generated on the device. nextN is the number
// of drafting layers; nil means that of the shape. experts lists zero to two GGUF types for the experts.
func drawn(shape string, seed uint64, nextN *int, experts []string) (*family.Source, error) {
	file, text, err := readShape(shape)
	if err != nil {
		return nil, err
	}
	o := synth.Options{DType: synth.FP8, Seed: seed, NextN: nextN}
	if d, err := config.Describe(file, text); err == nil && synth.AsReleased(d) == synth.Int4 {
		o.DType = synth.Int4
	}
	c, err := synth.New(file, text, o)
	if err != nil {
		return nil, err
	}
	if len(experts) > 0 {
		gateUp, err := blockType(experts[0])
		down := gateUp
		if err == nil && len(experts) > 1 {
			down, err = blockType(experts[1])
		}
		if err == nil && len(experts) > 2 {
			err = fmt.Errorf("%d types were given; want one for all matrices, or two: the first for gate and up, "+
				"the second for down", len(experts))
		}
		if err == nil {
			err = c.PackExperts(gateUp, down)
		}
		if err != nil {
			return nil, fmt.Errorf("experts: %w", err)
		}
	}
	return c.Dummy(shape)
}

// blockType parses the name of a GGUF type.
func blockType(name string) (block.Format, error) {
	var names []string
	for _, f := range block.Formats() {
		if strings.EqualFold(f.String(), name) {
			return f, nil
		}
		if f.Drawable() {
			names = append(names, f.String())
		}
	}
	return 0, fmt.Errorf("type %q is not supported; want one of %s", name, strings.Join(names, ", "))
}

// peer opens the results of another engine for comparison. It is called before any measurement, so that a missing file
// is reported early.
func (f *benchModelFlags) peer() (io.Reader, error) {
	if f.against == "" {
		return nil, nil
	}
	text, err := textfile.Read(f.against, textfile.Document)
	if err != nil {
		return nil, fmt.Errorf("bench model: --against: %w", err)
	}
	return strings.NewReader(string(text)), nil
}

// modelSource opens a checkpoint folder, or the built-in model.
func modelSource(dir string) (*family.Source, error) {
	if dir == "" {
		return builtin.Source()
	}
	return family.Open(dir)
}

func (f *benchModelFlags) draw(r *model.Report) (err error) {
	file, err := os.Create(f.plot)
	if err != nil {
		return fmt.Errorf("bench model: --plot: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return r.Plot().Write(file)
}
