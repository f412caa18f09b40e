package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow/internal/device"
	"sparrow/internal/model/config"
	"sparrow/internal/model/estimate"
	"sparrow/internal/model/family"
	"sparrow/plan"
	"sparrow/plan/explain"
	"sparrow/weight"
)

// explainFlags holds the flags for everything that affects a decision.
type explainFlags struct {
	policyFlags
	otherFlags
	model, family, catalog, hw, batch string
	graph, v4Prefill, attention       string
	heads, layer, paddedRows, tp      int
	draftTokens, draftBranches        int
	free, memory                      int64
	seed, carry, asJSON, time         bool
	quantised                         []string // weight formats for which a GPU quantises activation rows
}

func explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain",
		Short: "Show the kernels that would run for a batch, and the reasons, without running it",
		Long: `Explain resolves a configuration and plans a batch. It prints every choice with its reason, and every rejected
candidate. The catalogue "sparrow" has the kernels of this build. "public" describes those of other engines, also for
hardware on which this build does not run.

Batches:
  ` + strings.ReplaceAll(plan.BatchSyntax, "\n", "\n  "),
		Example: `  sparrow explain --family deepseek_v32 --kv fp8 --batch extend:3000
  sparrow explain --model testdata/oracle/glm_moe_dsa-1 --batch mixed:extend:700/decode:90,4000
  sparrow explain --family deepseek_v32 --hw 8xh200 --kv fp8 --batch decode:64x8192 --time
  sparrow explain --family deepseek_v32 --catalog public --hw sm100 --batch verify:4:100,5000 --json`,
		Args: func(c *cobra.Command, args []string) error {
			err := noArguments(c, args)
			if err != nil {
				err = fmt.Errorf("%w; select a model with --model or --family", err)
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := f.answer()
			if err != nil {
				return f.refuse(cmd, err)
			}
			var all any = a
			var t *timed
			if f.time {
				if t, err = f.estimated(a); err != nil {
					return err
				}
				all = t
			}
			if f.asJSON {
				return writeJSON(cmd.OutOrStdout(), all)
			}
			if err := a.Print(cmd.OutOrStdout()); err != nil || t == nil {
				return err
			}
			return t.Estimate.Print(cmd.OutOrStdout())
		},
	}
	c.Flags().SortFlags = false
	f.addAll(c.Flags())
	return c
}

// addAll defines every flag.
func (f *explainFlags) addAll(s *pflag.FlagSet) {
	f.add(s)
	f.policyFlags.add(s)
	f.addDraft(s)
	f.otherFlags.add(s)
}

// refuse adds to a planner's error the most similar command that works.
func (f *explainFlags) refuse(cmd *cobra.Command, err error) error {
	var pe *plan.Error
	if !errors.As(err, &pe) {
		return err
	}
	command := nearest(given(cmd.Flags()), pe)
	if f.asJSON {
		return errors.Join(writeJSON(cmd.OutOrStdout(), map[string]any{"error": refusal{pe, command}}), errReported)
	}
	if command != "" {
		return fmt.Errorf("%w\nthis works: %s", err, command)
	}
	return err
}

func (f *explainFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.model, "model", "",
		"checkpoint folder, GGUF file, or name of a pulled model: its configuration describes the model")
	s.StringVar(&f.family, "family", "",
		"released model instead of a checkpoint: "+strings.Join(plan.ModelNames(), ", "))
	s.StringVar(&f.catalog, "catalog", "sparrow", "kernels to choose from: sparrow or public")
	s.StringVar(&f.hw, "hw", "cpu", "hardware: cpu, an architecture such as sm90 or gfx95, a device such as h200, "+
		"b200 or a100, or H200s that share the model, such as 8xh200")
	s.StringVar(&f.batch, "batch", "", "what to plan; without it only the configuration is shown")
	s.IntVar(&f.heads, "heads", 0, "number of query heads per rank, if it differs from the model's")
	s.IntVar(&f.wish.DenseThreshold, "dense-threshold", 0,
		"maximum number of keys of a dense row; default as measured for the hardware, at most index_topk")
	s.IntVar(&f.wish.Running, "max-running", 0, "maximum number of sequences in a batch; 0 means not given")
	s.StringVar(&f.graph, "graph", "none", "captured graph: none, capture, replay, piecewise")
	s.StringVar(&f.v4Prefill, "v4-sparse-prefill", "", "prompts of DeepSeek-V4 over gathered rows: on, auto or off")
	s.IntVar(&f.tp, "tp", 0, "ranks that share the model")
	addAttention(s, &f.attention)
	s.IntVar(&f.layer, "layer", -1, "also show the indexer path of this layer")
	s.IntVar(&f.paddedRows, "padded-rows", 0, "number of rows to which the batch is padded")
	s.IntVar(&f.draftTokens, "draft-tokens", 0, "number of rows verified per request; --draft N means N+1 rows")
	s.IntVar(&f.draftBranches, "draft-branches", 0, "number of drafts (branches) kept per drafting step")
	s.Var((*byteCount)(&f.free), "free", "device `bytes` free now, such as 20G")
	s.Var((*byteCount)(&f.memory), "device-memory", "total device `bytes`, such as 80G, if not the hardware's usual")
	s.Var((*byteCount)(&f.wish.MaxTransient), "reserve", "maximum transient `bytes` of one step, such as 512M")
	s.BoolVar(&f.carry, "carry", false, "plan for an engine that passes selections between layers, sub-batches and "+
		"pipeline stages")
	s.BoolVar(&f.seed, "need-seed", false, "plan for drafts that start from the selected indices of the target")
	s.BoolVar(&f.time, "time", false, "also estimate how long the step takes, stage by stage, on H200s: with --hw "+
		"h200 or 8xh200, and a --batch")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
}

// answer resolves the configuration and plans the batch that the flags describe.
func (f *explainFlags) answer() (*explain.Answer, error) {
	m, err := f.facts()
	if err != nil {
		return nil, err
	}
	name, _, err := f.hardware()
	if err != nil {
		return nil, err
	}
	hw, err := plan.HardwareFor(name)
	if err != nil {
		return nil, err
	}
	if f.memory > 0 {
		hw.MemoryBytes = f.memory
	}
	ask := explain.Ask{Model: m, Hardware: hw, Question: explain.Question{Layer: f.layer, Carried: f.carry}}
	if err := f.ask(&ask); err != nil {
		return nil, err
	}
	var graph plan.GraphMode
	if err := graph.UnmarshalText([]byte(f.graph)); err != nil {
		return nil, fmt.Errorf("--graph: %w", err)
	}
	if f.batch == "" {
		if graph != plan.GraphNone {
			return nil, fmt.Errorf("explain: --graph %s describes a batch, but none was given; give --batch, such as "+
				"--batch decode:4x8192, or omit --graph", graph)
		}
		return f.noticed(ask.Answer())
	}
	b, err := plan.ParseBatch(f.batch)
	if err != nil {
		return nil, err
	}
	b.Graph, b.PaddedRows, b.NeedSeed, b.FreeBytes = graph, f.paddedRows, f.seed, f.free
	for i := range b.Requests {
		if m.ByRequests() { // requests are assigned to ranks in turn
			b.Requests[i].Rank = i % m.Ranks
		}
	}
	ask.Batch = &b
	return f.noticed(ask.Answer())
}

// noticed adds a notice that lists the weight formats for which a GPU quantises activation rows, although the format
// does not require it.
func (f *explainFlags) noticed(a *explain.Answer, err error) (*explain.Answer, error) {
	if err == nil && len(f.quantised) > 0 {
		a.Notices = append(a.Notices, plan.Notice{Level: plan.NoticeInfo, Rule: "docs/format/weights.md",
			Text: fmt.Sprintf("rows that are multiplied by %s are quantised to FP8 per 128 columns: FP8 products take "+
				"half of the time of BF16 products; --kernels cpu --precise quantises nothing",
				strings.Join(f.quantised, " or "))})
	}
	return a, err
}

// facts returns the description of the model, from a checkpoint or by name.
func (f *explainFlags) facts() (plan.Model, error) {
	var m plan.Model
	switch {
	case f.model != "" && f.family != "":
		return m, fmt.Errorf("explain: --model and --family both select a model; give one of them")
	case f.model != "":
		dir, err := modelFolder(modelFlag, f.model)
		if err != nil {
			return m, err
		}
		c, err := described(dir)
		if err != nil {
			return m, err
		}
		if m, err = family.Facts(c); err != nil {
			return m, err
		}
	case f.family != "":
		var err error
		if m, err = plan.ModelFor(f.family); err != nil {
			return m, err
		}
	default:
		return m, fmt.Errorf("explain: no model was given; give --model DIR or --family NAME (%s)",
			strings.Join(plan.ReleasedNames(), ", "))
	}
	if f.heads != 0 {
		m.Heads = f.heads
	}
	_, ranks, err := f.hardware()
	if err == nil && f.tp < 0 {
		err = fmt.Errorf("explain: --tp %d: want 0 or more ranks", f.tp)
	}
	if err != nil {
		return m, err
	}
	how, err := division(f.attention, ranks, "--tp 2")
	if err != nil {
		return m, err
	}
	if m, err = m.Divide(ranks, how); err != nil {
		return m, fmt.Errorf("explain: %w", err)
	}
	if f.layer > m.Layers {
		return m, fmt.Errorf("explain: --layer %d: the model has layers 0 to %d, and drafting layer %d if the "+
			"checkpoint has one", f.layer, m.Layers-1, m.Layers)
	}
	return m, nil
}

// loads returns an error if the GPU kernels do not support the weights of --model, for example a type of a GGUF file.
// Weights that do not exist are not checked.
func (f *explainFlags) loads(hw plan.Arch, m plan.Model) (err error) {
	if f.model == "" || hw == plan.CPU {
		return nil
	}
	dir, err := modelFolder(modelFlag, f.model)
	if err != nil {
		return err
	}
	src, err := modelSource(dir)
	switch {
	case errors.Is(err, weight.ErrNotFound): // the folder has a config.json, but not all weights
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := device.CheckWeights(src, hw, m); err != nil {
		return fmt.Errorf("explain: --hw %s: no GPU of this kind would load the model: %w; --hw cpu explains a CPU",
			f.hw, err)
	}
	if hw == plan.SM90 {
		f.quantised = estimate.QuantisedRows(src.Weights)
	}
	return nil
}

// ask adds the user's settings to the planner's input, as the policy type of the selected catalogue.
func (f *explainFlags) ask(q *explain.Ask) error {
	p, err := f.policy()
	if err != nil {
		return err
	}
	if p.Speculation, err = f.speculation(&q.Model); err != nil {
		return err
	}
	if err := p.V4SparsePrefill.UnmarshalText([]byte(f.v4Prefill)); err != nil {
		return fmt.Errorf("--v4-sparse-prefill: %w", err)
	}
	var catalog plan.Catalog
	if err := catalog.UnmarshalText([]byte(f.catalog)); err != nil {
		return fmt.Errorf("--catalog: %w", err)
	}
	if catalog == plan.CatalogPublic {
		return f.askPublic(q, p)
	}
	if err := f.none(); err != nil {
		return err
	}
	q.Policy, _ = plan.Defaults(&q.Hardware, q.Model.Family, p)
	return f.loads(q.Hardware.Arch, q.Model)
}

// askPublic adds the settings for the catalogue of other engines' kernels.
func (f *explainFlags) askPublic(q *explain.Ask, p plan.Policy) error {
	out, err := f.wishes()
	if err != nil {
		return err
	}
	if p.SplitKeys != 0 {
		return fmt.Errorf("explain: --split-keys %s splits the rows of Sparrow's kernels; omit it with "+
			"--catalog public", f.split)
	}
	if out.V4Q8 && q.Model.Family != plan.DeepSeekV4 {
		return fmt.Errorf("explain: --v4-q8 applies to DeepSeek-V4, but the model family is %v; omit it",
			q.Model.Family)
	}
	out.KV, out.Prefill, out.Decode, out.Dense, out.DenseThreshold = p.KV, p.Prefill, p.Decode, p.Dense,
		p.DenseThreshold
	out.Deterministic, out.Speculation, out.MaxTransient = p.Deterministic, p.Speculation, p.MaxTransient
	out.V4SparsePrefill, out.CarryIndices = p.V4SparsePrefill, f.carry
	out.FP4Index, out.Running = p.FP4Index, p.Running
	if out.AttentionTP = f.tp; q.Model.ByRequests() {
		out.AttentionTP, out.DP = 1, q.Model.Ranks
	}
	if f.noPreshuffle {
		q.Hardware.Preshuffle = false
	}
	q.Public = &out
	return nil
}

// speculation returns the drafting settings of --draft, or of --draft-tokens and --draft-branches. Without a flag there
// is no drafting. auto means the maximum draft length of the model, if it can draft.
func (f *explainFlags) speculation(m *plan.Model) (plan.Speculation, error) {
	s, err := f.drafts()
	switch {
	case err != nil:
		return plan.Speculation{}, err
	case f.draft != "" && f.draftTokens != 0:
		return plan.Speculation{},
			fmt.Errorf(
				"explain: --draft %s and --draft-tokens %d both set the number of verified rows; give one of them",
				f.draft, f.draftTokens)
	case f.draft == "" || s.Drafts() == 0:
		return plan.Speculation{Tokens: f.draftTokens, Branches: f.draftBranches}, nil
	}
	n := s.Drafts()
	switch {
	case s.IsFixed():
	case m.NextN == 0:
		return plan.Speculation{Branches: f.draftBranches}, nil
	case m.Block > 0:
		n = m.Block
	}
	return plan.Speculation{Tokens: n + 1, Branches: f.draftBranches}, nil
}

// described returns the config of a folder, which may have no weights yet, of a GGUF file, or of the built-in model.
func described(dir string) (_ config.Description, err error) {
	if dir != "" && !family.IsGGUF(dir) {
		return config.Read(dir)
	}
	s, err := modelSource(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Model, nil
}
