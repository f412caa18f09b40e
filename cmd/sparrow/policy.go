package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"sparrow/internal/spec"
	"sparrow/plan"
)

// policyFlags holds the flags for attention, shared by every command that plans.
type policyFlags struct {
	wish                plan.Policy // values of flags that need no parsing
	dense, draft, split string
}

func (p *policyFlags) add(f *pflag.FlagSet) {
	f.StringVar(&p.wish.KV, "kv", "", "cache layout: bf16, fp8 (656-byte blocks), fp8-576 (raw), f32 (exact, for "+
		"tests); default that of the hardware: bf16 on a CPU, fp8 on a GPU")
	f.StringVar(&p.wish.Prefill, "prefill", "", "prefill kernel: sparse-flat, sparse-block, sparse-raw, auto; default "+
		"the first that supports layout and hardware")
	f.StringVar(&p.wish.Decode, "decode", "",
		"decode kernel: sparse-flat, sparse-block, sparse-raw; default as for --prefill")
	f.StringVar(&p.dense, "dense", "",
		"dense attention for prompt tokens that attend to few keys: on or off; default on if there is a kernel for it")
	f.StringVar(&p.split, "split-keys", "auto", "number of keys after which decode attention splits a row: 256, 512, "+
		"1024, 2048, whole (no split), or auto (fastest for --max-running); on a GPU, for FP8 pages and models "+
		"without an indexer")
	f.BoolVar(&p.wish.FP4Index, "fp4-index", false, "indexer keys of DeepSeek-V4 in four bits: 68 bytes instead of 132")
	f.BoolVar(&p.wish.Deterministic, "deterministic", false,
		"use the same arithmetic for every row: logits of a token are bitwise equal in prefill and in decode")
}

// addDraft adds --draft, for the commands that generate or plan drafts.
func (p *policyFlags) addDraft(f *pflag.FlagSet) { f.StringVar(&p.draft, "draft", "", draftHelp) }

// draftHelp is the help text of --draft in every command; explain adds a sentence about its default.
const draftHelp = "tokens drafted with the checkpoint's drafting layers and verified together; answers stay the " +
	"same: auto (adaptive; the default if text is generated), a number from 1 to 7 (1 to 5 with a DSpark " +
	"head), or off"

// drafts parses --draft.
func (p *policyFlags) drafts() (spec.Setting, error) {
	s, err := spec.Parse(p.draft)
	if err != nil {
		return s, fmt.Errorf("--draft: %w", err)
	}
	return s, nil
}

// policy returns the policy that the flags select.
func (p *policyFlags) policy() (plan.Policy, error) {
	out := p.wish
	if err := out.Dense.UnmarshalText([]byte(p.dense)); err != nil {
		return out, fmt.Errorf("--dense: %w", err)
	}
	split, err := plan.ParseKeySplit(p.split)
	if err != nil {
		return out, fmt.Errorf("--split-keys: %w", err)
	}
	out.SplitKeys = split
	return out, nil
}
