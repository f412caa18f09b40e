package main

import (
	"encoding"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow/plan"
	"sparrow/plan/public"
)

// removed is a flag that this engine no longer has, with its replacement and the error for a command that uses it.
// 'explain --catalog public' accepts the flag if it applies to other engines.
type removed struct {
	flag, instead string
	code          plan.Code
}

// removedFlags lists the removed flags of all commands.
var removedFlags = []removed{
	{"page", "pages have 64 tokens, those of DeepSeek-V4 256", plan.E06},
	{"dense-capacity", "a dense call holds 131072 keys, and fewer where --reserve is smaller", plan.E02},
	{"chunked-prefill", "--step-tokens bounds the new tokens of a step", plan.E02},
	{"topk", "Sparrow's selections are exact and stable", plan.E09},
	{"tie-break", "if scores are equal, the smaller position is selected", plan.E09},
	{"fused", "a selection and its transform are two operations of every plan", plan.E09},
	{"scores", "one kernel for each device computes scores", plan.E02},
	{"score-cap", "a chunk of scores has at most 256 MiB, and less where --reserve is smaller", plan.E02},
	{"automatic-splits", "keys are split at positions that do not depend on the batch (see --split-keys)", plan.E13},
	{"cp", "ranks share a model by heads or by requests: --attention", plan.E10},
	{"tbo", "host work overlaps with the device's without a second batch", plan.E12},
	{"hisparse", "the cache is in device memory, and evicted pages are in tiers: docs/tiers.md", plan.E14},
	{"v4-q8", "prompts of DeepSeek-V4 are gathered as bf16: --prefill v4-flat, or read in place: v4-paged", plan.E02},
	{"v4-schedule", "Sparrow's kernels need no schedule", plan.E02},
	{"no-preshuffle", "Sparrow's kernels read keys in their usual order", plan.E02},
}

// insteadOf returns the replacement of a removed flag, as a clause for an error; empty for any other flag.
func insteadOf(flag string) string {
	i := slices.IndexFunc(removedFlags, func(r removed) bool { return r.flag == flag })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("; %s (other engines: 'sparrow explain --catalog public')", removedFlags[i].instead)
}

// removedCommands returns commands that this program no longer has: each returns an error that names its replacement.
func removedCommands() []*cobra.Command {
	return []*cobra.Command{{Use: "simulate", Hidden: true, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return fmt.Errorf("%s is now a separate program: use go run ./cmd/simulate, with the same flags and "+
				"commands, in a checkout of the sources", c.CommandPath())
		}}}
}

// otherFlags holds the removed flags that 'explain --catalog public' accepts for the kernels of other engines.
type otherFlags struct {
	public                   public.Policy // values of flags that need no parsing
	fused, splits, scheduler string
	topk, tie, scores, cp    string
	noPreshuffle             bool
	set                      *pflag.FlagSet
}

func (f *otherFlags) add(s *pflag.FlagSet) {
	f.set = s
	of := func(text string) string { return text + " (--catalog public)" }
	s.IntVar(&f.public.Page, "page", 0, of("tokens per page"))
	s.IntVar(&f.public.ChunkCapacity, "dense-capacity", 0,
		of("maximum number of keys of one dense call; default 131072"))
	s.IntVar(&f.public.ChunkedPrefill, "chunked-prefill", 0,
		of("maximum number of prompt tokens of one step; default by device memory"))
	s.StringVar(&f.topk, "topk", "", of("selection kernel: sgl-kernel, flashinfer, torch"))
	s.StringVar(&f.tie, "tie-break", "", of("which of two equal scores is selected: small or large position"))
	s.StringVar(&f.fused, "fused", "", of("selection and transform in one kernel: on or off"))
	s.StringVar(&f.scores, "scores", "", of("paged score kernel: native, deepgemm, aiter, cutedsl"))
	s.StringVar(&f.cp, "cp", "", of("context parallelism as KIND:SIZE, such as interleave:4 or zigzag:2"))
	s.StringVar(&f.splits, "automatic-splits", "", of("let kernels split the key range by load: on or off"))
	s.StringVar(&f.scheduler, "v4-schedule", "", of("kernel that plans V4's paged scores: own or library"))
	s.Int64Var(&f.public.ScoreCap, "score-cap", 0, of("maximum bytes of one chunk of indexer scores; default 256 MiB"))
	s.BoolVar(&f.public.TBO, "tbo", false, of("two-batch overlap"))
	s.BoolVar(&f.public.HiSparse, "hisparse", false, of("KV offload (HiSparse) that loads only selected tokens"))
	s.BoolVar(&f.public.V4Q8, "v4-q8", false, of("use the FP8 variant of V4's sparse prefill"))
	s.BoolVar(&f.noPreshuffle, "no-preshuffle", false, of("do not use the preshuffled score kernel on AMD"))
}

// none returns an error if a removed flag is set without '--catalog public'.
func (f *otherFlags) none() error {
	for _, r := range removedFlags {
		if g := f.set.Lookup(r.flag); g.Changed {
			return &plan.Error{Code: r.code, Asked: fmt.Sprintf("--%s %s in the catalogue sparrow", r.flag, g.Value),
				Supported: r.instead, Try: "--catalog public"}
		}
	}
	return nil
}

// wishes returns the policy that the flags select.
func (f *otherFlags) wishes() (public.Policy, error) {
	out := f.public
	out.TopK, out.TieBreak, out.Scores = public.TopK(f.topk), public.TieBreak(f.tie), public.Scores(f.scores)
	for _, w := range []struct {
		flag, text string
		to         encoding.TextUnmarshaler
	}{{"fused", f.fused, &out.Fused}, {"automatic-splits", f.splits, &out.AutomaticSplits},
		{"v4-schedule", f.scheduler, &out.V4Schedule}} {
		if err := w.to.UnmarshalText([]byte(w.text)); err != nil {
			return out, fmt.Errorf("--%s: %w", w.flag, err)
		}
	}
	if f.cp == "" {
		return out, nil
	}
	kind, size, ok := strings.Cut(f.cp, ":")
	n, err := strconv.Atoi(size)
	if !ok || err != nil {
		return out, fmt.Errorf("--cp %q: want KIND:SIZE, such as interleave:4", f.cp)
	}
	out.CP = public.CP{Kind: public.CPKind(kind), Size: n}
	return out, nil
}
