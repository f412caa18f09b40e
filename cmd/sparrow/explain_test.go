package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/estimate"
	"sparrow/internal/testkit/archive"
	"sparrow/plan"
)

// decision is one of the numbered cases of the dispatch rules: its number, its flags, and the expected facts of the
// result.
type decision struct {
	number int
	name   string
	// the flags after "explain"; --catalog public --heads 16 --family deepseek_v32 are added unless given here
	flags string
	want  string
}

// These are flags that several cases use, named by the number of the case that resolves them.
const (
	one    = "--hw sm90"
	two    = "--hw sm90 --kv fp8"
	three  = "--hw sm100"
	six    = "--hw sm120 --family glm_moe_dsa"
	nine   = "--hw sm100 --kv fp8 --prefill flashmla_kv --decode trtllm"
	gather = "--hw sm90 --kv fp8 --prefill flashmla_sparse --decode flashmla_kv"
	auto   = "--hw sm100 --kv fp8 --prefill flashmla_auto --decode flashmla_kv"
	v4     = "--hw sm90 --family deepseek_v4"
	amd    = "--hw gfx95 --kv fp8"
)

var resolutions = []decision{
	{1, "hopper with nothing set", one, "kv=bf16 prefill=flashmla_sparse decode=fa3 layout=bf16-1152 page=64"},
	{2, "hopper with fp8", two, "kv=fp8_e4m3 prefill=flashmla_kv decode=flashmla_kv layout=fp8-656"},
	{3, "blackwell with nothing set", three, "kv=fp8_e4m3 prefill=trtllm decode=trtllm layout=fp8-576"},
	{4, "blackwell with bf16", "--hw sm100 --kv bf16",
		"kv=bf16 prefill=flashmla_sparse decode=trtllm layout=bf16-1152"},
	{5, "amd with fp8", amd, "prefill=tilelang decode=tilelang layout=fp8-576 page=64"},
	{5, "amd without the preshuffled kernel", amd + " --no-preshuffle",
		"prefill=tilelang decode=tilelang layout=fp8-576 page=1"},
	{6, "workstation with glm", six,
		"kv=fp8_e4m3 prefill=flashinfer_sparse_mla decode=flashinfer_sparse_mla layout=fp8-656"},
	{7, "workstation with deepseek", "--hw sm120 --kv fp8", "code=E01"},
	{8, "ampere", "--hw sm80 --kv bf16", "code=E01"},
	{8, "ampere with the reference", "--hw sm80 --kv bf16 --prefill reference --decode reference",
		"prefill=reference decode=reference layout=bf16-1152"},
	{9, "block prefill, raw decode", nine, "layout=fp8-576 prefill=flashmla_kv decode=trtllm"},
	{10, "raw prefill, block decode", "--hw sm100 --kv fp8 --prefill trtllm --decode flashmla_kv", "code=E04"},
	{11, "trtllm on hopper", "--hw sm90 --kv fp8 --prefill trtllm", "code=E02"},
	{12, "q8 over bf16", "--hw sm90 --kv bf16 --prefill flashmla_sparse_q8", "code=E03"},
	{13, "q8 as decode", "--hw sm90 --kv fp8 --decode flashmla_sparse_q8", "code=E02"},
	{13, "auto as decode", "--hw sm90 --kv fp8 --decode flashmla_auto", "code=E02"},
	{14, "tilelang over fp8", "--hw sm90 --kv fp8 --prefill tilelang", "code=E03"},
	{14, "fa3 over fp8", "--hw sm90 --kv fp8 --decode fa3", "code=E03"},
	{15, "another fp8", "--hw sm90 --kv fp8_e5m2", "code=E05"},
	{16, "torch fused", "--hw sm90 --topk torch --fused on", "code=E09"},
	{16, "torch on its own", "--hw sm90 --topk torch --fused off", "prefill=flashmla_sparse decode=fa3"},
	{17, "tree drafts", "--hw sm90 --draft-tokens 4 --draft-branches 4", "code=E11"},
	{18, "v4 with zigzag", v4 + " --cp zigzag:2", "code=E10"},
	{18, "v4 with pages of 64", v4 + " --page 64", "page=256 layout=v4-584 notice~warning:"},
	{19, "sharing with overlap, no carry", "--hw sm90 --family glm-5.2 --tbo", "code=E12"},
	{19, "sharing with overlap and carry", "--hw sm90 --family glm-5.2 --tbo --carry",
		"prefill=flashmla_sparse decode=fa3"},
}

var batches = []decision{
	{9, "block prefill rewrites raw pages", nine + " --batch extend:3000",
		"form=sparse-mla kernel=flashmla_kv convert=raw-to-block transform=paged rows-layout=fp8-576"},
	{20, "short prompts", one + " --batch extend:512,1024", "form=dense-mha indexer=k-only convert=none"},
	{21, "a prefix over fp8", two + " --batch extend:256+256",
		"form=dense-mha convert=gather-bf16 array:page_table_flat=[512]"},
	{22, "no prefix over fp8", two + " --batch extend:512", "form=dense-mha convert=none array:page_table_flat!"},
	{23, "a prefix over raw rows", three + " --batch extend:256+256",
		"form=dense-mha kernel=trtllm_ragged convert=gather-bf16 rows-layout=fp8-576 rope-in-kernel=false"},
	{24, "at the threshold", one + " --batch extend:2048", "form=dense-mha"},
	{24, "above the threshold", one + " --batch extend:2049",
		"form=sparse-mla kernel=flashmla_sparse transform=paged heads=64"},
	{25, "above the capacity", one + " --batch extend:70x2000", "form=sparse-mla indexer=k-only-with-indices"},
	{26, "no dense form here", six + " --batch extend:100", "form=sparse-mla indexer=k-only-with-indices"},
	{27, "context parallelism", one + " --cp interleave:2 --batch extend:1500", "form=sparse-mla indexer=ragged"},
	{28, "a piecewise graph", one + " --graph piecewise --padded-rows 128 --batch extend:100",
		"form=sparse-mla indexer=k-only-with-indices rows=100 kernel-rows=128 reasons~dispatch-10;"},
	{29, "a higher threshold", one + " --dense-threshold 4096 --batch extend:3000",
		"form=dense-mha indexer=k-only notice~warning:dispatch-5;"},
	{30, "deterministic", one + " --deterministic --topk flashinfer --tie-break small --batch extend:100",
		"form=sparse-mla splits-fixed=true"},
	{31, "sparse prefill over fp8 without prefix", gather + " --batch extend:8192",
		"transform=ragged convert=none array:page_table_flat!"},
	{32, "sparse prefill over fp8 with prefix", gather + " --batch extend:4096+4096",
		"transform=ragged convert=gather-bf16 array:page_table_flat=[8192] keys=8192"},
	{33, "its decode", gather + " --batch decode:9000,12", "kernel=flashmla_kv transform=paged"},
	{33, "its verify", gather + " --batch verify:4:9000,12", "kernel=flashmla_kv transform=paged"},
	{34, "its mixed batch", gather + " --batch mixed:extend:9000/decode:500",
		"transform=ragged kernel=flashmla_sparse"},
	{35, "auto with few keys per row", auto + " --batch extend:4096+995904", "kernel=flashmla_sparse transform=ragged"},
	{36, "auto at equality", auto + " --batch extend:4096+2093056", "kernel=flashmla_kv transform=paged"},
	{37, "auto before a decode", auto + " --batch extend:4096+995904",
		"kernel=flashmla_sparse transform=ragged prefill=flashmla_auto"},
	{38, "auto over fp8 on hopper",
		"--hw sm90 --kv fp8 --prefill flashmla_auto --decode flashmla_kv --batch extend:8192",
		"kernel=flashmla_kv transform=paged"},
	{38, "auto over bf16 on hopper", "--hw sm90 --kv bf16 --prefill flashmla_auto --decode fa3 --batch extend:8192",
		"kernel=flashmla_sparse transform=paged"},
	{39, "decode on hopper", one + " --batch decode:10,3000,2048",
		"kernel=fa3 dsa_cache_seqlens=10,2048,2048 array:ctx_lens_2d=[3,1] indexer=paged-split"},
	{40, "verify on blackwell", three + " --draft-tokens 4 --batch verify:4:100,5000",
		"kernel=trtllm seqlens_expanded=101,102,103,104,5001,5002,5003,5004 array:ctx_lens_2d=[2,4] " +
			"ctx_lens_2d=104,104,104,104,5004,5004,5004,5004 indexer=paged-native next-n=4"},
	{41, "verify on hopper", two + " --draft-tokens 4 --batch verify:4:100,5000",
		"array:ctx_lens_2d=[8,1] ctx_lens_2d=101,102,103,104,5001,5002,5003,5004 indexer=paged-split"},
	{42, "drafts on blackwell", three + " --draft-tokens 4 --batch draft:4:104",
		"seqlens_expanded=101,102,103,104 indexer=paged-split"},
	{43, "a padded draft", three + " --draft-tokens 2 --batch draft:2:0", "seqlens_expanded=0,0"},
	{44, "the schedule limit", two + " --batch extend:12000", "kernel=flashmla_kv launches=11622+378"},
	{45, "the grid limit", three + " --batch extend:70000", "kernel=trtllm launches=65535+4465"},
	{46, "scores in chunks", one + " --score-cap 268435456 --free 100000000000 --batch extend:8192+122880",
		"indexer=ragged chunk=512 chunks=16"},
	{47, "v4 prompts", v4 + " --batch extend:4096", "form=v4-sparse-prefill"},
	{47, "v4 decode", v4 + " --batch decode:64x4000", "form=v4-paged"},
	{48, "v4 without sparse prefill", v4 + " --v4-sparse-prefill off --batch extend:4096",
		"form=v4-paged launches=4096"},
	{48, "v4 without sparse prefill, long", v4 + " --v4-sparse-prefill off --batch extend:12000",
		"form=v4-paged launches=11622+378"},
	{49, "v4 on a workstation", "--hw sm120 --family deepseek_v4 --batch extend:20000", "form=v4-paged"},
	{50, "v4, one prompt of 8192", v4 + " --batch extend:8192", "indexer=contiguous"},
	{50, "v4, one row less", v4 + " --batch extend:8191", "indexer=paged-split"},
	{50, "v4, two prompts", v4 + " --batch extend:8192,8192", "indexer=paged-split"},
	{51, "a shared layer", "--hw sm90 --family glm-5.2 --batch extend:3000 --layer 3 --carry",
		"form=sparse-mla layer=carry"},
	{51, "a shared layer without indices", "--hw sm90 --family glm-5.2 --batch extend:3000 --layer 3", "code=E23"},
	{51, "a computing layer", "--hw sm90 --family glm-5.2 --batch extend:3000 --layer 6", "layer=ragged"},
	{52, "idle", one + " --batch idle", "segments=0 collectives=true"},
	{53, "48 heads", "--hw sm90 --kv bf16 --heads 48 --batch extend:8192", "heads=64"},
	{53, "130 heads", "--hw sm90 --kv bf16 --heads 130 --batch extend:8192", "code=E08"},
	{54, "amd eager decode", amd + " --batch decode:2000,17",
		"kernel=tilelang indexer=k-only-with-indices variant=only"},
	{54, "amd captured, short", amd + " --graph replay --batch decode:2000,17",
		"indexer=k-only-with-indices variant=short"},
	{54, "amd captured, long", amd + " --graph replay --batch decode:2049,17", "indexer=paged-split variant=long"},
	{55, "v4 by size, short", v4 + " --v4-sparse-prefill auto --batch extend:4096", "form=v4-paged schedule=library"},
	{55, "v4 by size, the most of a launch", v4 + " --v4-sparse-prefill auto --batch extend:11622",
		"form=v4-paged schedule=library launches=11622"},
	{55, "v4 by size, one more", v4 + " --v4-sparse-prefill auto --batch extend:11623",
		"form=v4-sparse-prefill schedule=own launches=11623"},
	{55, "v4 by size, long", v4 + " --v4-sparse-prefill auto --batch extend:20000",
		"form=v4-sparse-prefill schedule=own"},
	{56, "v4 by size with the own schedule kernel",
		v4 + " --v4-sparse-prefill auto --v4-schedule own --batch extend:4096", "form=v4-paged schedule=own"},
}

// question returns the arguments of a case, with further ones appended.
func (d decision) question(more ...string) []string {
	args := append([]string{"explain", "--catalog", "public"}, strings.Fields(d.flags)...)
	if !strings.Contains(d.flags, "--heads") {
		args = append(args, "--heads", "16")
	}
	if !strings.Contains(d.flags, "--family") {
		args = append(args, "--family", "deepseek_v32")
	}
	return append(args, more...)
}

// For every case of the dispatch rules the command line gives the planner's result, and every refusal suggests a
// command that works.
func TestExplainAnswersEveryDecision(t *testing.T) {
	seen := map[int]bool{}
	for _, d := range append(append([]decision{}, resolutions...), batches...) {
		seen[d.number] = true
		t.Run(fmt.Sprintf("%02d %s", d.number, d.name), func(t *testing.T) {
			status, stdout, stderr := invoke(d.question("--json")...)
			if stderr != "" {
				t.Errorf("with --json something is on standard error: %s", stderr)
			}
			a := decode(t, stdout)
			expect(t, a.facts(), d.want)
			if refused := strings.HasPrefix(d.want, "code="); refused {
				if status != 1 {
					t.Errorf("exit status %d, want 1", status)
				}
				refusedHuman(t, d, a)
				return
			}
			if status != 0 {
				t.Fatalf("exit status %d, want 0", status)
			}
			if a.Plan != nil && a.Plan.Runnable {
				t.Error("a plan over other engines' kernels claims to run here")
			}
			status, stdout, _ = invoke(d.question()...)
			if status != 0 || a.Plan != nil && !strings.Contains(stdout, "plan "+a.Plan.Key) {
				t.Errorf("for people: status %d and\n%s", status, stdout)
			}
			if len(a.Arrays) != len(plansOf(a)) {
				t.Errorf("arrays of %d segments, want %d", len(a.Arrays), len(plansOf(a)))
			}
			for i := range plansOf(a) {
				s := &a.Plan.Segments[i]
				for _, w := range []string{s.Form, s.Kernel, s.Transform, s.Convert, s.Indexer.Kind} {
					if !strings.Contains(stdout, w) {
						t.Errorf("for people: %q is not in\n%s", w, stdout)
					}
				}
			}
		})
	}
	for n := 1; n <= 56; n++ { // case 57 uses our own catalogue: TestExplainOwnCatalogue
		if !seen[n] {
			t.Errorf("case %d is not asked", n)
		}
	}
}

func plansOf(a *answer) []segment {
	if a.Plan == nil {
		return nil
	}
	return a.Plan.Segments
}

// refusedHuman checks the text of a refusal and that the suggested command works.
func refusedHuman(t *testing.T, d decision, a *answer) {
	t.Helper()
	e := a.Error
	if e.Asked == "" || e.Supported == "" || e.Command == "" {
		t.Fatalf("incomplete refusal %+v", e)
	}
	status, stdout, stderr := invoke(d.question()...)
	if status != 1 || stdout != "" {
		t.Errorf("for people: status %d, standard output %q", status, stdout)
	}
	for _, w := range []string{e.Code, e.Asked, e.Supported,
		"this works: " + strings.ReplaceAll(e.Command, " --json", "")} {
		if !strings.Contains(stderr, w) {
			t.Errorf("for people: %q is not in\n%s", w, stderr)
		}
	}
	if n := strings.Count(stderr, plan.Code(e.Code).Title()); n != 1 {
		t.Errorf("the title is printed %d times:\n%s", n, stderr)
	}
	args, ok := strings.CutPrefix(e.Command, "sparrow ")
	if !ok {
		t.Fatalf("the command is %q", e.Command)
	}
	if status, stdout, stderr := invoke(strings.Fields(args)...); status != 0 {
		t.Errorf("%q does not work: %s%s", e.Command, stdout, stderr)
	}
}

// If ranks share attention by requests, explain divides the chunk of prompt rows among them.
func TestExplainDividesTheChunk(t *testing.T) {
	for flags, want := range map[string]int{"": 8192, "--tp 8": 8192, "--tp 8 --attention dp": 1024} {
		_, stdout,
			stderr := invoke(strings.Fields("explain --json --catalog public --hw sm90 --family v3.2 " + flags)...)
		if got := decode(t, stdout).Config.Chunk; got != want {
			t.Errorf("%s: chunks of %d tokens, want %d: %s", flags, got, want, stderr)
		}
	}
}

// If a deterministic command is refused, the suggested command is deterministic too.
func TestExplainSuggestsDeterministicCommands(t *testing.T) {
	for _, flags := range []string{"--catalog public --hw sm90", "--catalog public --hw sm100",
		"--catalog public --hw sm100 --topk flashinfer --tie-break small", "--catalog public --hw gfx95",
		"--hw h200 --kv fp8 --prefill sparse-flat", "--hw h200 --prefill fa3",
		"--hw h200 --kv fp8 --prefill fa3 --decode fa3",
		"--hw cpu --kv fp8_e5m2", "--family v4 --hw h200 --prefill v4-flat", "--family v4 --v4-sparse-prefill on"} {
		if !strings.Contains(flags, "--family") {
			flags += " --family v3.2"
		}
		status, stdout, stderr := invoke(strings.Fields("explain --json --deterministic " + flags)...)
		if status != 1 {
			t.Errorf("%s: status %d, want a refusal: %s", flags, status, stderr)
			continue
		}
		if c := decode(t, stdout).Error.Command; !strings.Contains(c, "--deterministic") {
			t.Errorf("%s: suggests %q", flags, c)
		} else if status, _, stderr := invoke(strings.Fields(strings.TrimPrefix(c, "sparrow "))...); status != 0 {
			t.Errorf("%s: %q does not work: %s", flags, c, stderr)
		}
	}
}

// A decode that is planned between two prompts does not change their plans (case 37 of the dispatch rules).
func TestExplainHasNoMemory(t *testing.T) {
	ask := func(batch string) string {
		status, stdout, stderr := invoke(decision{flags: auto + " --batch " + batch}.question("--json")...)
		if status != 0 {
			t.Fatal(stdout, stderr)
		}
		return stdout
	}
	first := ask("extend:4096+995904")
	ask("decode:5,6")
	if again := ask("extend:4096+995904"); again != first {
		t.Error("the same question has two answers")
	}
}

// With the catalogue of this build a batch is planned in segments: the first rows of a prompt are dense, its other rows
// sparse, and a decode is a segment of its own.
func TestExplainOwnCatalogue(t *testing.T) {
	for _, c := range []struct {
		name, flags string
		segments    []string
	}{
		{"a long prompt on a cpu", "--batch extend:3000", []string{
			"form=dense-mha kernel=dense-ragged convert=gather-rows rows=2048 transform=none",
			"form=sparse-mla kernel=sparse-flat convert=none rows=952 transform=paged indexer=ragged"}},
		{"a smaller threshold", "--dense-threshold 512 --batch extend:3000", []string{
			"form=dense-mha kernel=dense-ragged convert=gather-rows rows=512 transform=none",
			"form=sparse-mla kernel=sparse-flat convert=none rows=1536 indexer=k-only-with-indices",
			"form=sparse-mla kernel=sparse-flat convert=none rows=952 transform=paged indexer=ragged"}},
		{"verify 8 in groups of 4", "--hw sm90 --kv fp8 --batch verify:8:100,5000",
			[]string{"kernel=sparse-block indexer=paged-native next-n=4 kernel-n=4 rows=16"}},
		{"a long prompt beside a decode", "--hw sm90 --kv bf16 --batch mixed:extend:3000/decode:9000", []string{
			"form=dense-mha kernel=dense-ragged convert=gather-rows rows=2048 transform=none",
			"form=sparse-mla kernel=sparse-flat convert=none rows=952 transform=paged indexer=ragged",
			"form=sparse-mla kernel=sparse-flat rows=1 transform=paged indexer=paged-split"}},
		{"block prefill over raw rows",
			"--kv fp8-576 --prefill sparse-block --decode sparse-raw --dense off --batch extend:3000", []string{
				"form=sparse-mla kernel=sparse-block convert=raw-to-block rows=2048 indexer=k-only-with-indices",
				"form=sparse-mla kernel=sparse-block convert=raw-to-block rows=952 indexer=ragged"}},
		{"gathered rows", "--kv fp8 --prefill sparse-flat --batch extend:10+4000",
			[]string{"kernel=sparse-flat convert=gather-bf16 transform=ragged keys=4010"}},
		{"57 verify 2 natively", "--hw sm90 --kv fp8 --batch verify:2:100,5000",
			[]string{"kernel=sparse-block indexer=paged-native next-n=2 kernel-n=2 rows=4"}},
		{"57 verify 3 natively as 4", "--hw sm90 --kv fp8 --batch verify:3:100,5000",
			[]string{"kernel=sparse-block indexer=paged-native next-n=3 kernel-n=4 rows=6"}},
		{"57 verify 4 natively", "--hw sm90 --kv fp8 --batch verify:4:100,5000",
			[]string{"kernel=sparse-block indexer=paged-native next-n=4 kernel-n=4 rows=8"}},
		{"verify 5 row by row", "--hw sm90 --kv fp8 --batch verify:5:100,5000",
			[]string{"kernel=sparse-block indexer=paged-split next-n=1 rows=10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := invoke(append(strings.Fields("explain --json --family deepseek_v32 "),
				strings.Fields(c.flags)...)...)
			if status != 0 {
				t.Fatal(stdout, stderr)
			}
			a := decode(t, stdout)
			if len(a.Plan.Segments) != len(c.segments) || !a.Plan.Runnable {
				t.Fatalf("%d segments, runnable %v; want %d that run", len(a.Plan.Segments), a.Plan.Runnable,
					len(c.segments))
			}
			if len(a.Arrays) != 0 {
				t.Errorf("arrays of other engines: %v", a.Arrays)
			}
			for i, w := range c.segments {
				f := map[string]string{}
				a.Plan.Segments[i].facts(f)
				expect(t, f, w)
				if s := &a.Plan.Segments[i]; len(s.Reasons) == 0 || len(s.Rejected) == 0 {
					t.Errorf("segment %d has %d reasons, %d rejected candidates", i, len(s.Reasons), len(s.Rejected))
				}
			}
		})
	}
}

func TestExplainReadsACheckpoint(t *testing.T) {
	status, stdout, stderr := invoke("explain", "--model", "../../testdata/oracle/glm_moe_dsa-1", "--batch",
		"extend:700", "--layer", "2", "--carry", "--json")
	if status != 0 {
		t.Fatal(stdout, stderr)
	}
	a := decode(t, stdout)
	if len(a.Plan.Segments) != 2 || a.Plan.Segments[0].Rows != 128 || a.Plan.Segments[1].Rows != 572 ||
		a.Layer.Indexers[1].Kind != "carry" {
		t.Errorf("segments %+v, layer %+v", a.Plan.Segments, a.Layer)
	}
}

// explain refuses weight types that a GPU's kernels do not support, like serve, once for each type. It prints a plan
// for a CPU, for kernels of other engines, and for supported types.
func TestExplainRefusesWeightsThatAGPUDoesNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, mix := range []string{"q4_k_m", "bf16"} {
		mustDrive(t, "", "quantize", "builtin", filepath.Join(dir, mix+".gguf"), "--type", mix)
	}
	for _, c := range []struct{ args, want string }{
		{"q4_k_m.gguf --hw h200", "prepare experts: a weight of type q5_0, this backend supports f32, f16"},
		{"q4_k_m.gguf --hw 2xh200 --batch decode:8x100", "prepare experts: a weight of type q5_0"},
		{"q4_k_m.gguf --hw cpu", ""},
		{"q4_k_m.gguf --hw h200 --catalog public", ""},
		{"bf16.gguf --hw h200", ""},
		{"bf16.gguf --hw 2xh200", ""},
	} {
		status, stdout, stderr := invoke(append([]string{"explain", "--model"},
			strings.Fields(dir+"/"+c.args)...)...)
		if c.want == "" && status != 0 || c.want != "" && (status != 1 || strings.Count(stderr, c.want) != 1) {
			t.Errorf("%s: status %d, %s%s; want one %q", c.args, status, stdout, stderr, c.want)
		}
	}
}

// explain lists the rows that the kernels quantise although the checkpoint's format does not require it.
func TestExplainNamesQuantisedRows(t *testing.T) {
	dir := filepath.Join(archive.Unpack(t, "../../testdata/oracle/formats-1.tar.gz"), "formats-1", "checkpoints")
	base, err := filepath.Abs("../../testdata/oracle/deepseek_v32-1/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"fp8-channel-compressed": true, "nvfp4-modelopt": false} {
		folder := filepath.Join(dir, name)
		if err := os.Symlink(base, filepath.Join(folder, "base.safetensors")); err != nil {
			t.Fatal(err)
		}
		for _, hw := range []string{"h200", "cpu"} {
			status, stdout, stderr := invoke("explain", "--model", folder, "--hw", hw)
			said := strings.Contains(stdout, "by FP8 with a scale for each row or matrix are quantised to FP8")
			if status != 0 || said != (want && hw == "h200") {
				t.Errorf("%s on %s: status %d, %s%s", name, hw, status, stdout, stderr)
			}
		}
	}
}

// explain does not report a default of a GPU as requested by the user, and the plan is the same if the user gives the
// default layout.
func TestExplainNamesDefaults(t *testing.T) {
	for _, kv := range []string{"", " --kv fp8"} {
		args := strings.Fields("explain --family deepseek_v32 --hw h200 --batch extend:9000" + kv)
		_, stdout, stderr := invoke(args...)
		if !strings.Contains(stdout, "prefill sparse-flat: a GPU's default") || strings.Contains(stdout,
			"requested by the user") {
			t.Errorf("%q: %s%s", kv, stdout, stderr)
		}
	}
	_, stdout, _ := invoke(strings.Fields("explain --family deepseek_v32 --hw h200 --prefill sparse-block")...)
	if !strings.Contains(stdout, "prefill sparse-block: requested by the user") {
		t.Error(stdout)
	}
}

// On eight GPUs the heads are divided, the plan shows the division, and the step has a time estimate.
func TestExplainRanks(t *testing.T) {
	// FP8 rows are the default on a GPU, and --tp 8 with one H200 has the same result as 8xh200.
	for _, hw := range []string{"--hw 8xh200 --kv fp8", "--hw 8xh200", "--hw h200 --tp 8"} {
		status, stdout, stderr := invoke(append(strings.Fields("explain --family deepseek_v32 --batch decode:64x8192 "+
			"--time"), strings.Fields(hw)...)...)
		if status != 0 {
			t.Fatal(hw, stdout, stderr)
		}
		for _, part := range []string{"8 ranks share attention by heads: each computes 16 of 128", "whole cache",
			"on 8 H200", "of weights on each", "not measured", "links"} {
			if !strings.Contains(stdout, part) {
				t.Errorf("%s: no %q in\n%s", hw, part, stdout)
			}
		}
		if strings.Contains(stdout, "do not fit") {
			t.Errorf("%s: eight GPUs are too few in\n%s", hw, stdout)
		}
	}
}

// If all experts are on the GPUs, explain and inspect print the same time estimate for a step of DeepSeek-V4.
func TestExplainTimesV4AsInspectDoes(t *testing.T) {
	for _, c := range []struct{ family, name string }{{"v4-flash", "deepseek-v4-flash"}, {"v3.2", "deepseek-v3.2"}} {
		var asked struct{ Estimate estimate.Estimate }
		status, stdout, stderr := invoke("explain", "--family", c.family, "--hw", "8xh200", "--batch", "decode:32x8192",
			"--time", "--json")
		if err := json.Unmarshal([]byte(stdout), &asked); status != 0 || err != nil {
			t.Fatal(err, stdout, stderr)
		}
		var fit estimate.Fit
		status, stdout, stderr = invoke("inspect", c.name, "--hw", "8xh200,128G", "--json")
		if err := json.Unmarshal([]byte(stdout), &fit); status != 0 || err != nil {
			t.Fatal(err, stdout, stderr)
		}
		if got, want := asked.Estimate.Millis, fit.Speeds[1].Step.Millis; math.Abs(got/want-1) > 0.01 {
			t.Errorf("%s: explain says %.3f ms, inspect %.3f", c.name, got, want)
		}
	}
}

// If the weights are larger than the memory of the GPUs, the message names their size and the number of GPUs that would
// be enough.
func TestExplainSaysWhatDoesNotFit(t *testing.T) {
	for _, hw := range []string{"h200", "2xh200"} {
		status, stdout, stderr := invoke("explain", "--family", "deepseek_v32", "--hw", hw, "--batch",
			"decode:64x8192", "--time")
		if status != 0 || !strings.Contains(stdout, "warning: the weights do not fit") ||
			!strings.Contains(stdout, "8 H200s hold them (--hw 8xh200)") {
			t.Errorf("%s: status %d: %s%s", hw, status, stdout, stderr)
		}
	}
}

func TestExplainRefusesBadFlags(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"", "no model was given; give --model DIR or --family NAME"},
		{"--family deepseek_v32 --model x", "--model and --family both select a model"},
		{"--family gpt", "supported"},
		{"--model nowhere", "config.json"},
		{"--family deepseek_v32 --catalog mine", "--catalog"},
		{"--family deepseek_v32 --hw tpu", "E01"},
		{"--family deepseek_v32 --hw mi350x", "this works: sparrow explain --family deepseek_v32 --hw cpu"},
		{"--family deepseek_v32 --catalog public --cp interleave", "KIND:SIZE"},
		{"--family deepseek_v32 --catalog public --split-keys 512", "omit it with --catalog public"},
		{"--family deepseek_v32 --catalog public --hw sm90 --fp4-index", "E05"},
		{"--family deepseek_v32 --catalog public --max-running -1", "must not be negative"},
		{"--family deepseek_v32 --cp round:2", "--cp"},
		{"--family deepseek_v32 --dense maybe", "--dense"},
		{"--family deepseek_v32 --batch run:3", "E20"},
		{"--family deepseek_v32 --batch extend:x", "E26"},
		{"--family deepseek_v32 --batch extend:3 --graph sometimes", "--graph"},
		{"--family deepseek_v32 --graph replay", "give --batch"},
		{"--family deepseek_v32 --batch decode:4000 --graph replay",
			"this works: sparrow explain --family deepseek_v32 --batch decode:4000 --graph none"},
		{"--family deepseek_v32 --batch verify:2:4000 --graph capture --draft 1",
			"E25: graph not possible for this batch; requested: a batch of mode verify in graph mode capture on cpu"},
		{"--family deepseek_v32 --batch extend:40 --graph piecewise --hw h200",
			"--hw h200 --batch extend:40 --graph none"},
		{"--family deepseek_v32 --tp 3", "E08"},
		{"--family deepseek_v32 --tp -1", "want 0 or more ranks"},
		{"--family deepseek_v32 --tp 2 --attention both", "--attention both: want tp, dp or auto"},
		{"--family deepseek_v32 --hw 0xh200", "such as 8xh200"},
		{"--family deepseek_v32 --hw 8xh200 --tp 4", "omit --tp"},
		{"--family deepseek_v32 --hw 8xb200 --time --batch decode:9", "--hw b200 --tp 8"},
		{"--family deepseek_v32 --hw 2xcpu", "--hw cpu --tp 2, without --time"},
		{"--family deepseek_v32 --hw h100 --time --batch decode:9", "--hw h100 is not supported: times were"},
		{"--family deepseek_v32 --max-running -1", "running sequences (--max-running) is -1, want 0"},
		{"--family deepseek_v32 --hw 3xh200 --time --batch decode:9",
			"this works: sparrow explain --family deepseek_v32 --hw 2xh200 --batch decode:9 --time"},
		{"--family deepseek_v32 --hw h200 --tp 3",
			"this works: sparrow explain --family deepseek_v32 --hw h200 --tp 2"},
		{"--family deepseek_v32 --hw tpu --time --batch decode:9",
			"this works: sparrow explain --family deepseek_v32 --hw cpu --batch decode:9\n"},
		{"--family deepseek_v32 --batch 64", "try decode:64xLEN"},
		{"--family deepseek_v32 --batch 64x8192", "try decode:64x8192"},
		{"--family deepseek_v32 --hw 8xh200 --time", "give its --batch"},
		{"--family deepseek_v32 --time --batch decode:9", "--hw h200"},
		{"--family deepseek_v32 --nonsense", "unknown flag"},
		{"--family deepseek_v32 --reserve much", "--reserve much: want a number of bytes such as 500M or 4G"},
		{"--family deepseek_v32 --reserve 1M --kv fp8 --deterministic --batch decode:4000",
			"this works: sparrow explain --family deepseek_v32 --batch decode:4000 --reserve 22290432 --kv fp8 " +
				"--deterministic\n"},
		{"--family deepseek_v32 stray", "takes no arguments"},
	} {
		status, stdout, stderr := invoke(append([]string{"explain"}, strings.Fields(c.flags)...)...)
		if status != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q on standard output, error %q; want %q", c.flags, status, stdout, stderr, c.want)
		}
	}
}

// If no other flags can correct a command, the refusal suggests no command; a value with a space is quoted in a
// suggestion.
func TestNearest(t *testing.T) {
	for _, c := range []struct {
		asked []setting
		e     *plan.Error
		want  string
	}{
		{[]setting{{"family", "deepseek_v32"}, {"batch", "extend:0"}}, &plan.Error{Code: plan.E26}, ""},
		{[]setting{{"family", "deepseek_v32"}, {"kv", "fp9"}, {"deterministic", "true"}},
			&plan.Error{Code: plan.E05, Try: "--kv fp8, or another"},
			"sparrow explain --family deepseek_v32 --kv fp8 --deterministic"},
		{[]setting{{"family", "glm-5.2"}, {"layer", "3"}, {"batch", "decode:3000"}}, &plan.Error{Code: plan.E23},
			"sparrow explain --family glm-5.2 --layer 3 --batch decode:3000 --carry"},
		{[]setting{{"family", "deepseek_v32"}, {"kv", "fp9"}, {"topk", "torch"}},
			&plan.Error{Code: plan.E05, Try: "prose"}, "sparrow explain --family deepseek_v32"},
		{[]setting{{"family", "deepseek_v32"}, {"reserve", "100000"}, {"kv", "fp8"}},
			// explain refuses this suggestion too.
			&plan.Error{Code: plan.E17, Try: "--reserve 4000000, or a shorter context"},
			"sparrow explain --family deepseek_v32 --reserve 22290432 --kv fp8"},
	} {
		if got := nearest(c.asked, c.e); got != c.want {
			t.Errorf("%v: %q, want %q", c.asked, got, c.want)
		}
	}
	if got := commandLine([]setting{{"model", "my model's"}}); got != `sparrow explain --model 'my model'\''s'` {
		t.Errorf("quoted as %s", got)
	}
}

// If ranks share attention by requests, each rank plans its own segments; requests are assigned to the ranks in turn.
func TestExplainRanksByRequests(t *testing.T) {
	status, out, errs := invoke("explain", "--family", "deepseek_v32", "--tp", "2", "--attention", "dp", "--batch",
		"decode:2x9000")
	if status != 0 || !strings.Contains(out, "2 ranks share attention by requests: each computes all 128 heads") {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	if n := strings.Count(out, "of rank "); n != 2 {
		t.Errorf("%d segments of ranks, want 2: %s", n, out)
	}
}

// explain prints no warning for DeepSeek-V4 on a GPU, because DeepSeek-V4 runs on GPUs (docs/gpu.md).
func TestExplainOfV4OnAGPUHasNoWarning(t *testing.T) {
	out, _ := mustDrive(t, "", "explain", "--family", "deepseek_v4", "--hw", "h200", "--batch", "decode:4000")
	if strings.Contains(out, "warning") {
		t.Error(out)
	}
}

// With --draft auto, explain plans the longest drafts of the model: a block of its drafting stages, or none if the
// model has no stages. It refuses the settings with which a GPU refuses to draft.
func TestExplainDraftsAsModelsDo(t *testing.T) {
	for args, want := range map[string]string{
		"--family v4-flash-0731 --draft auto":           "up to 5 drafts by 3 stages",
		"--family v4-flash-0731 --draft 6":              "use at most --draft 5",
		"--family v4-flash-0731 --draft auto --hw h200": "up to 5 drafts by 3 stages",
		"--family deepseek_v32 --draft auto":            "up to 7 drafts by layer 61",
		"--family v4.1 --draft auto":                    "plan ",
	} {
		_, stdout, stderr := invoke(append([]string{"explain", "--batch", "decode:300"}, strings.Fields(args)...)...)
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: no %q in:\n%s%s", args, want, stdout, stderr)
		}
	}
}
