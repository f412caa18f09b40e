package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cost"
)

// The keys of a row are split as the measured times require for the number of rows that the server is configured for,
// or as the user requested.
func TestSplitFollowsTheLoad(t *testing.T) {
	for _, c := range []struct {
		name string
		at   cost.Decode
		want KeySplit
	}{
		{"short parts", cost.Decode{Whole: 3, Keys256: 1, Keys512: 2}, Split256},
		{"long parts", cost.Decode{Whole: 3, Keys256: 2, Keys512: 1}, Split512},
		{"whole", cost.Decode{Whole: 1, Keys256: 2, Keys512: 3}, SplitWhole},
		{"a tie", cost.Decode{Whole: 2, Keys256: 2, Keys512: 2}, Split512},
	} {
		want(t, c.name, fastestSplit(c.at), c.want)
	}
	times := (&Hardware{Arch: SM90}).costs()
	if !slices.IsSortedFunc(times.Decodes, func(a, b cost.Decode) int { return a.Rows - b.Rows }) {
		t.Fatalf("decodes do not ascend: %v", times.Decodes)
	}
	resolved := func(p Policy, heads, ranks int, how Division) Config {
		t.Helper()
		return newSetup(t, "sm90", kv("fp8"), wish(func(q *Policy) {
			q.Running, q.SplitKeys, q.Speculation = p.Running, p.SplitKeys, p.Speculation
		}), func(s *setup) { s.model.Heads, s.model.Ranks, s.model.Division = heads, ranks, how }).resolve(t)
	}
	for _, at := range times.Decodes {
		split := fastestSplit(at)
		cfg := resolved(Policy{Running: at.Rows}, 128, 1, DivisionUnset)
		want(t, fmt.Sprintf("%d sequences", at.Rows), cfg.SplitKeys, split)
		quoted := fmt.Sprintf("rows over FP8 pages are %s: up to %d rows of 128 heads decode at once; on an H200 "+
			"with Hopper kernels, attention of %s over FP8 pages takes %v us cut after 256 keys, %v after 512, %v "+
			"whole", split.Says(), at.Rows, countRows(at.Rows), at.Keys256, at.Keys512, at.Whole)
		if !slices.ContainsFunc(cfg.Reasons, func(r Reason) bool { return strings.HasPrefix(r.Text, quoted) }) {
			t.Errorf("no reason begins %q: %q", quoted, cfg.Reasons)
		}
		want(t, fmt.Sprintf("%d sequences of 16 heads, which take a unit of 64", 2*at.Rows),
			resolved(Policy{Running: 2 * at.Rows}, 16, 1, DivisionUnset).SplitKeys, split)
		want(t, fmt.Sprintf("%d sequences on two ranks", 2*at.Rows),
			resolved(Policy{Running: 2 * at.Rows}, 128, 2, ByRequests).SplitKeys, split)
		if at.Rows%2 == 0 {
			drafting := Policy{Running: at.Rows / 2, Speculation: Speculation{Tokens: 2}}
			want(t, fmt.Sprintf("%d sequences with a draft", at.Rows/2),
				resolved(drafting, 128, 1, DivisionUnset).SplitKeys, split)
		}
	}
	want(t, "a load that nobody named", resolved(Policy{}, 128, 1, DivisionUnset).SplitKeys, Split512)
	for _, k := range []KeySplit{SplitWhole, Split256, Split512} {
		cfg := resolved(Policy{Running: 1, SplitKeys: k}, 128, 1, DivisionUnset)
		want(t, "asked for "+k.String(), cfg.SplitKeys, k)
		for _, batch := range []Batch{decode(9), extendOver(300, 4000)} {
			want(t, "split of a segment", build(t, cfg, batch).Segments[0].SplitKeys, k)
		}
		for hw, change := range map[string]tweak{"cpu": kv("fp8"), "sm90": kv("bf16")} {
			s := newSetup(t, hw, change)
			want(t, "without a wish on "+hw, s.resolve(t).SplitKeys, SplitUnset)
			s.policy.SplitKeys = k
			s.refused(t, E02)
		}
	}
}

// On GPUs with the portable kernels rows are cut for a single sequence unless more are named, and the reason states
// which of the two cases applies.
func TestSplitOfPortableKernels(t *testing.T) {
	for _, c := range []struct {
		running int
		split   KeySplit
		because string
	}{
		{0, Split256, "for a single sequence, because the number of concurrent sequences was not given " +
			"(--max-running)"},
		{1, Split256, "up to 1 rows of 128 heads decode at once"},
		{8, Split256, "up to 8 rows of 128 heads decode at once"},
		{9, Split512, "up to 9 rows of 128 heads decode at once"},
	} {
		cfg := newSetup(t, "sm89", kv("fp8"), wish(func(p *Policy) { p.Running = c.running }),
			func(s *setup) { s.model.Heads = 128 }).resolve(t)
		want(t, fmt.Sprintf("%d sequences", c.running), cfg.SplitKeys, c.split)
		text := fmt.Sprintf("rows over FP8 pages are %s: %s; assumed (measured with portable kernels on an H200): "+
			"attention of 1 row of 128 heads over FP8 pages takes 27 us cut after 256 keys, 43 after 512; of 16 "+
			"rows 73, 62",
			c.split.Says(), c.because)
		if !slices.ContainsFunc(cfg.Reasons, func(r Reason) bool { return strings.HasPrefix(r.Text, text) }) {
			t.Errorf("no reason begins %q: %q", text, cfg.Reasons)
		}
	}
}

func TestSplitsAreWords(t *testing.T) {
	for word, k := range map[string]KeySplit{"auto": SplitUnset, "": SplitUnset, "whole": SplitWhole,
		"Whole": SplitWhole, "256": Split256, "512": Split512} {
		if got, err := ParseKeySplit(word); err != nil || got != k {
			t.Errorf("%q: %v, %v; want %v", word, got, err, k)
		}
	}
	_, err := ParseKeySplit("300")
	if err == nil || !strings.Contains(err.Error(), "whole, 256, 512, 1024, 2048, auto") {
		t.Errorf("300: %v, want an error that lists the words", err)
	}
}

// For a model whose indexer selects pools of tokens, the keys of prompt rows are not split and need no memory for
// partial results. Decoding rows are split as decided at the start.
func TestPromptsOfPoolsStayWhole(t *testing.T) {
	cfg := newSetup(t, "sm90", family(t, "glm5_next"), kv("fp8"), drafts(1)).resolve(t)
	want(t, "cut", cfg.SplitKeys, Split512)
	for name, c := range map[string]struct {
		batch Batch
		want  KeySplit
	}{"a prompt": {extendOver(300, 4000), SplitWhole}, "the start of a prompt": {extendOver(300, 0), SplitWhole},
		"a decode": {decode(9), Split512}} {
		for _, s := range build(t, cfg, c.batch).Segments {
			want(t, name, s.SplitKeys, c.want)
			if row, _ := attendScratch(&cfg, &s, 4096); (row > 0) != (c.want == Split512) {
				t.Errorf("%s: a row has %d bytes for parts", name, row)
			}
		}
	}
}
