package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sparrow/plan"
)

// Plans of the catalogue sparrow for models of every family: layouts, drafts, groups of verified rows, splits of keys,
// ranks, short variants and prefixes. The answers follow from docs/plan.md and docs/spec.
func TestExplainEveryFamily(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"--family v3 --batch extend:5000+1000",
			"dense-prefill 3096: dense-mha dense-ragged bf16-1152 gather-rows none none heads 128\n" +
				"latent-prefill 1904: dense-mla dense-latent bf16-1152 none none none heads 128"},
		{"--family kimi_k2 --hw sm90 --batch extend:100+16350",
			"dense-prefill 34: dense-mha dense-ragged fp8-656 gather-rows none none heads 64\n" +
				"latent-prefill 66: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024"},
		{"--family glm4_moe_lite --hw sm90 --draft 1 --batch verify:2:900,5000",
			"verify 4: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024"},
		{"--family glm4_moe_lite --kv f32 --draft 2 --batch verify:3:900",
			"verify 3: dense-mla dense-latent f32-2304 none none none heads 20"},
		{"--family v32 --hw sm90 --draft 6 --batch verify:7:5000",
			"verify 7: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 cut 512"},
		{"--family v32 --hw sm90 --draft 5 --batch verify:6:5000",
			"verify 6: sparse-mla sparse-block fp8-656 none paged paged-native3 as 4 heads 128 cut 512"},
		{"--family v32 --draft 6 --batch verify:7:5000",
			"verify 7: sparse-mla sparse-flat bf16-1152 none paged paged-native7 heads 128"},
		{"--family v32 --draft-tokens 10 --batch verify:10:5000",
			"verify 10: sparse-mla sparse-flat bf16-1152 none paged paged-native5 heads 128"},
		{"--family v32 --draft-tokens 11 --batch verify:11:5000",
			"verify 11: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 128"},
		{"--family v32 --deterministic --kv fp8-576 --draft 1 --batch verify:2:100",
			"verify 2: sparse-mla sparse-raw fp8-576 none paged paged-split heads 128 short"},
		{"--family v32 --hw sm90 --deterministic --prefill sparse-flat", "refused E13"},
		{"--family v32 --dense-threshold 500 --batch extend:3000",
			"dense-prefill 500: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 128\n" +
				"short-prefill 1548: sparse-mla sparse-flat bf16-1152 none paged k-only-with-indices heads 128\n" +
				"sparse-prefill 952: sparse-mla sparse-flat bf16-1152 none paged ragged heads 128"},
		{"--family v32 --dense-threshold 3000 --need-seed --batch extend:4000",
			"dense-prefill 3000: dense-mha dense-ragged bf16-1152 gather-rows none ragged heads 128\n" +
				"sparse-prefill 1000: sparse-mla sparse-flat bf16-1152 none paged ragged heads 128"},
		{"--family v32 --need-seed --batch extend:400",
			"dense-prefill 400: dense-mha dense-ragged bf16-1152 gather-rows none k-only-with-indices heads 128"},
		{"--family v4 --hw sm90 --batch extend:300+1900",
			"short-prefill 151: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged k-only-with-indices heads 64\n" +
				"sparse-prefill 149: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged ragged heads 64"},
		{"--family v4-pro --batch extend:10+4095",
			"short-prefill 4: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged k-only-with-indices heads 128\n" +
				"sparse-prefill 6: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged ragged heads 128"},
		{"--family v41 --batch extend:600",
			"short-prefill 512: v4-paged v4-paged v41-288 none paged k-only-with-indices heads 64\n" +
				"sparse-prefill 88: v4-paged v4-paged v41-288 none paged paged-split heads 64"},
		{"--family v41 --hw sm90 --draft 5 --batch verify:6:5000",
			"verify 6: v4-paged v4-paged v41-288 none paged paged-split heads 64"},
		{"--family v41 --hw rtx4090", "refused E01"},
		{"--family glm5_next --batch extend:100+2000",
			"short-prefill 51: sparse-mla sparse-pools bf16-1024 none paged k-only-with-indices heads 64\n" +
				"sparse-prefill 49: sparse-mla sparse-pools bf16-1024 none paged ragged heads 64"},
		{"--family glm5_next --hw sm90 --batch mixed:extend:100+2000/decode:9000",
			"short-prefill 51: sparse-mla sparse-flat fp8-528 gather-bf16 ragged k-only-with-indices heads 64\n" +
				"sparse-prefill 49: sparse-mla sparse-flat fp8-528 gather-bf16 ragged ragged heads 64\n" +
				"decode 1: sparse-mla sparse-pools fp8-528 none paged paged-split heads 64 cut 512"},
		{"--family glm5_next --hw sm90 --prefill sparse-pools --batch extend:10+9000",
			"sparse-prefill 10: sparse-mla sparse-pools fp8-528 none paged ragged heads 64 cut whole"},
		{"--family glm5_next --hw sm90 --deterministic --batch extend:10+9000",
			"sparse-prefill 10: sparse-mla sparse-pools fp8-528 none paged ragged heads 64 cut whole"},
		{"--family glm5_next --hw sm90 --deterministic --prefill sparse-flat", "refused E13"},
		{"--family glm5_next --hw sm90 --kv bf16 --prefill sparse-flat", "refused E03"},
		{"--family glm5_next --kv fp8 --batch extend:10+9000",
			"sparse-prefill 10: sparse-mla sparse-pools fp8-528 none paged ragged heads 64"},
		{"--family glm5_next --hw sm90 --batch decode:2051",
			"decode 1: sparse-mla sparse-pools fp8-528 none paged paged-split heads 64 short cut 512"},
		{"--family glm5_next --hw sm90 --batch decode:2052",
			"decode 1: sparse-mla sparse-pools fp8-528 none paged paged-split heads 64 cut 512"},
		{"--family glm5_next --draft-tokens 12 --batch verify:12:3000",
			"verify 12: sparse-mla sparse-pools bf16-1024 none paged paged-native6 heads 64"},
		{"--family glm5_next --draft-tokens 13 --batch verify:13:3000", "refused E11"},
		{"--family v32 --hw sm90 --tp 4 --attention dp --batch decode:5x3000",
			"decode 2: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 cut 512\n" +
				"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 cut 512 rank 1\n" +
				"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 cut 512 rank 2\n" +
				"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 cut 512 rank 3"},
		{"--family v32 --hw sm90 --tp 8 --batch decode:5x3000",
			"decode 5: sparse-mla sparse-block fp8-656 none paged paged-split heads 64 cut 512"},
		{"--family kimi_k2 --hw sm90 --tp 3 --attention tp --batch decode:5x3000",
			"decode 5: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024"},
		{"--family kimi_k2 --hw sm90 --tp 3 --batch decode:3x3000",
			"decode 1: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024\n" +
				"decode 1: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024 rank 1\n" +
				"decode 1: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024 rank 2"},
		{"--family v4 --hw sm90 --tp 16 --batch decode:16x30",
			"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 1\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 2\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 3\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 4\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 5\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 6\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 7\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 8\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 9\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 10\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 11\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 12\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 13\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 14\n" +
				"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short rank 15"},
		{"--family glm5_next --tp 2", "refused E08"},
		{"--family v32 --hw sm90 --draft 3 --batch verify:4:2044",
			"verify 4: sparse-mla sparse-block fp8-656 none paged paged-native4 heads 128 short cut 512"},
		{"--family v32 --hw sm90 --draft 3 --batch verify:4:2045",
			"verify 4: sparse-mla sparse-block fp8-656 none paged paged-native4 heads 128 cut 512"},
		{"--family v32 --hw sm90 --draft 3 --batch draft:4:2048",
			"draft 4: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 short cut 512"},
		{"--family v32 --batch decode:2048,2049",
			"decode 2: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 128"},
		{"--family v4 --batch decode:2051",
			"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 short"},
		{"--family v4 --batch decode:2052", "decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64"},
		{"--family v41 --batch decode:512",
			"decode 1: v4-paged v4-paged v41-288 none paged paged-split heads 64 short"},
		{"--family v41 --batch decode:513", "decode 1: v4-paged v4-paged v41-288 none paged paged-split heads 64"},
		{"--family v32 --hw sm90 --split-keys 1024 --prefill sparse-block --batch extend:10+9000",
			"sparse-prefill 10: sparse-mla sparse-block fp8-656 none paged ragged heads 128 cut 1024"},
		{"--family v32 --hw sm90 --split-keys 1024 --batch extend:10+9000",
			"sparse-prefill 10: sparse-mla sparse-flat fp8-656 gather-bf16 ragged ragged heads 128"},
		{"--family v32 --hw sm90 --kv bf16 --split-keys 512", "refused E02"},
		{"--family v4 --hw sm90 --split-keys 512", "refused E02"},
		{"--family v3 --split-keys 512", "refused E02"},
		{"--family glm5_next --hw sm90 --kv bf16 --split-keys 256 --batch decode:9000",
			"decode 1: sparse-mla sparse-pools bf16-1024 none paged paged-split heads 64 cut 256"},
		{"--family v3 --hw sm90 --kv bf16 --split-keys whole --batch decode:9000",
			"decode 1: dense-mla dense-latent bf16-1152 none none none heads 128 cut whole"},
		{"--family v32 --hw sm90 --max-running 64 --draft 1",
			"sparse-flat sparse-block fp8-656 index-fp8-132 T 2048 dense true cut whole"},
		{"--family v32 --hw sm90 --max-running 16",
			"sparse-flat sparse-block fp8-656 index-fp8-132 T 2048 dense true cut 512"},
		{"--family v32 --hw sm90 --tp 8 --max-running 8",
			"sparse-flat sparse-block fp8-656 index-fp8-132 T 2048 dense true cut 256"},
		{"--family v32 --hw sm90 --tp 4 --attention dp --max-running 64",
			"sparse-flat sparse-block fp8-656 index-fp8-132 T 2048 dense true cut 512"},
		{"--family glm-5 --kv fp8-576 --prefill sparse-block --batch extend:5+3000",
			"sparse-prefill 5: sparse-mla sparse-block fp8-576 raw-to-block paged ragged heads 64"},
		{"--family glm-5 --hw sm90 --kv fp8-576 --prefill sparse-flat --batch mixed:extend:5+3000/decode:7",
			"sparse-prefill 5: sparse-mla sparse-flat fp8-576 gather-bf16 ragged ragged heads 64\n" +
				"decode 1: sparse-mla sparse-raw fp8-576 none paged paged-split heads 64 short cut 512"},
		{"--family v41 --fp4-index", "refused E05"},
		{"--family v4 --fp4-index", "v4-flat v4-paged v4-584 index-fp4-68 T 512 dense false cut"},
		{"--family v4 --kv f32 --batch extend:5+3000",
			"sparse-prefill 5: v4-paged v4-paged v4-f32-2048 none paged ragged heads 64"},
		{"--family v4 --kv f32 --v4-sparse-prefill on", "refused E02"},
		{"--family glm5_next --kv f32 --batch decode:9000",
			"decode 1: sparse-mla sparse-pools f32-2048 none paged paged-split heads 64"},
		{"--family v41 --kv f32 --batch decode:9000",
			"decode 1: v4-paged v4-paged v4-f32-2048 none paged paged-split heads 64"},
		{"--family v32 --hw sm90 --draft 2 --padded-rows 8 --batch verify:3:2x100", "refused E26"},
		{"--family v32 --batch split-prefill:100",
			"dense-prefill 100: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 128"},
		{"--family v32 --batch dllm-extend:100+3000",
			"sparse-prefill 100: sparse-mla sparse-flat bf16-1152 none paged ragged heads 128"},
		{"--family glm-5.2 --layer 3 --batch decode:9000", "refused E23"},
		{"--family glm-5.2 --layer 3 --carry --batch decode:9000",
			"decode 1: sparse-mla sparse-flat bf16-1152 none paged carry heads 64"},
		{"--family glm-5.2 --layer 3 --batch extend:90",
			"dense-prefill 90: dense-mha dense-ragged bf16-1152 gather-rows none none heads 64"},
		{"--family glm-5.2 --layer 78 --draft 1 --batch draft:2:9000",
			"draft 2: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64"},
		{"--family v41 --layer 3 --carry --batch decode:9000",
			"decode 1: v4-paged v4-paged v41-288 none paged carry heads 64"},
		{"--family v41 --layer 1 --batch decode:9000",
			"decode 1: v4-paged v4-paged v41-288 none paged none heads 64"},
		{"--family v41 --layer 40 --batch decode:9000",
			"decode 1: v4-paged v4-paged v41-288 none paged none heads 64"},
		{"--family v4 --layer 3 --batch decode:9000", "decode 1: v4-paged v4-paged v4-584 none paged none heads 64"},
		{"--family v4 --layer 43 --batch decode:9000", "decode 1: v4-paged v4-paged v4-584 none paged none heads 64"},
		{"--family v4-pro --layer 0 --batch decode:9000",
			"decode 1: v4-paged v4-paged v4-584 none paged none heads 128"},
		{"--family glm5_next --layer 0 --batch decode:9000",
			"decode 1: sparse-mla sparse-pools bf16-1024 none paged none heads 64"},
		{"--family glm5_next --layer 3 --batch decode:9000",
			"decode 1: sparse-mla sparse-pools bf16-1024 none paged paged-split heads 64"},
		{"--family v32 --hw sm90 --heads 130", "refused E08"},
		{"--family kimi_k2 --draft 1", "refused E15"},
		{"--family v4 --deterministic --v4-sparse-prefill on", "refused E02"},
		{"--family v3 --deterministic --batch extend:100",
			"latent-prefill 100: dense-mla dense-latent bf16-1152 none none none heads 128"},
		{"--family v3 --dense off --hw sm90 --batch extend:100",
			"latent-prefill 100: dense-mla dense-latent fp8-656 none none none heads 128 cut 1024"},
		{"--family glm5_next --deterministic --draft 3 --batch verify:4:9000",
			"verify 4: sparse-mla sparse-pools bf16-1024 none paged paged-split heads 64"},
		{"--family v4 --hw sm90 --draft 7 --batch verify:8:9000",
			"verify 8: v4-paged v4-paged v4-584 none paged paged-native4 heads 64"},
		{"--family v4 --hw sm90 --deterministic --draft 3 --batch verify:4:9000",
			"verify 4: v4-paged v4-paged v4-584 none paged paged-split heads 64"},
		{"--family v3 --hw a100 --batch decode:9000",
			"decode 1: dense-mla dense-latent fp8-656 none none none heads 128 cut 1024"},
		{"--family v32 --hw sm90 --tp 4 --attention dp --batch idle", ""},
		{"--family v32 --hw sm90 --draft 1 --batch mixed:verify:2:10/verify:3:10/decode:10",
			"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 128 short cut 512\n" +
				"verify 2: sparse-mla sparse-block fp8-656 none paged paged-native2 heads 128 short cut 512\n" +
				"verify 3: sparse-mla sparse-block fp8-656 none paged paged-native3 as 4 heads 128 short cut 512"},
		{"--family v4-flash-0731 --hw sm90 --draft 5 --batch draft:5:900",
			"draft 5: v4-paged v4-paged v4-584 none paged none heads 64"},
		{"--family v4-flash-0731 --hw sm90 --draft auto --batch verify:6:9000",
			"verify 6: v4-paged v4-paged v4-584 none paged paged-native3 as 4 heads 64"},
		{"--family v4-pro-0813 --hw sm90 --draft 4 --batch verify:5:9000",
			"verify 5: v4-paged v4-paged v4-584 none paged paged-split heads 128"},
		{"--family v4-flash-0731 --draft 5 --batch verify:6:2045",
			"verify 6: v4-paged v4-paged v4-584 none paged paged-native6 heads 64 short"},
		{"--family v4-flash-0731 --draft 5 --batch verify:6:2046",
			"verify 6: v4-paged v4-paged v4-584 none paged paged-native6 heads 64"},
		{"--family glm-5 --draft 3 --batch mixed:verify:4:2040/decode:3000,4/extend:10+2040",
			"dense-prefill 8: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 64\n" +
				"sparse-prefill 2: sparse-mla sparse-flat bf16-1152 none paged ragged heads 64\n" +
				"decode 2: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64\n" +
				"verify 4: sparse-mla sparse-flat bf16-1152 none paged paged-native4 heads 64 short"},
		{"--family glm-5 --kv bf16 --hw sm120 --batch mixed:extend:10+2040/verify:5:9",
			"dense-prefill 8: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 64\n" +
				"sparse-prefill 2: sparse-mla sparse-flat bf16-1152 none paged ragged heads 64\n" +
				"verify 5: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 short"},
		{"--family v3 --dense-threshold 100 --batch extend:150",
			"dense-prefill 100: dense-mha dense-ragged bf16-1152 gather-rows none none heads 128\n" +
				"latent-prefill 50: dense-mla dense-latent bf16-1152 none none none heads 128"},
		{"--family v3 --prefill sparse-flat", "refused E02"},
		{"--family v41 --prefill v4-flat", "refused E03"},
		{"--family glm5_next --kv fp8-656", "refused E05"},
		{"--family v4 --prefill v4-flat --deterministic", "refused E13"},
		{"--family v32 --kv fp8-576 --prefill auto --batch extend:10+5000",
			"sparse-prefill 10: sparse-mla sparse-raw fp8-576 none paged ragged heads 128"},
		{"--family glm4_moe_lite --hw sm90 --tp 8 --batch decode:2x5000",
			"decode 1: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024\n" +
				"decode 1: dense-mla dense-latent fp8-656 none none none heads 64 cut 1024 rank 1"},
		{"--family glm5_next --hw a100 --batch decode:9000",
			"decode 1: sparse-mla sparse-pools fp8-528 none paged paged-split heads 64 cut 256"},
	} {
		status, stdout, stderr := invoke(append([]string{"explain", "--json"}, strings.Fields(c.flags)...)...)
		var a struct {
			Config plan.Config
			Plan   *plan.Plan
			Layer  *struct{ Indexers []plan.Indexer }
			Error  *plan.Error
		}
		if err := json.Unmarshal([]byte(stdout), &a); err != nil {
			t.Errorf("%s: status %d, %v: %s", c.flags, status, err, stderr)
			continue
		}
		var lines []string
		switch {
		case a.Error != nil:
			lines = []string{"refused " + string(a.Error.Code)}
		case a.Plan == nil:
			x := &a.Config
			lines = []string{fmt.Sprintf("%v %v %v %v T %d dense %v cut %v", x.Prefill, x.Decode, x.Layout,
				x.IndexLayout, x.T, x.DenseOK, x.SplitKeys)}
		default:
			for i := range a.Plan.Segments {
				s := &a.Plan.Segments[i]
				x := s.Indexer
				if a.Layer != nil {
					x = a.Layer.Indexers[i]
				}
				lines = append(lines, segmentLine(s, x))
			}
		}
		if got := strings.TrimSpace(strings.Join(lines, "\n")); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.flags, got, c.want)
		}
	}
}

// segmentLine returns the decisions of a segment as one line.
func segmentLine(s *plan.Segment, x plan.Indexer) string {
	indexer := x.Kind.String()
	if x.Kind == plan.IndexerPagedNative {
		indexer += fmt.Sprint(x.NextN)
		if x.KernelN != x.NextN {
			indexer += fmt.Sprintf(" as %d", x.KernelN)
		}
	}
	out := fmt.Sprintf("%v %d: %v %v %v %v %v %s heads %d", s.Row, s.Rows, s.Form, s.Kernel, s.Layout, s.Convert,
		s.Transform, indexer, s.KernelHeads)
	if s.Variant == plan.VariantShort {
		out += " short"
	}
	if s.SplitKeys != plan.SplitUnset {
		out += " cut " + s.SplitKeys.String()
	}
	if s.Rank > 0 {
		out += fmt.Sprintf(" rank %d", s.Rank)
	}
	return out
}
