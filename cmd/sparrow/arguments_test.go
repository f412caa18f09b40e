package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Errors about wrong arguments name the flags and commands that the user typed.
func TestWrongArgumentsAreNamedAsTheyWereTyped(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run --workers -2 hi", "--workers -2: want 0 or more"},
		{"run --workers 1000000 hi", "--workers 1000000: want at most 4096"},
		{"run --ranks 65 hi", "--ranks 65: want at most 64"},
		{"run --gpus 0 hi", "--gpus 0: want how many, from 1 to 64, or a list"},
		{"run --gpus 0,x hi", "--gpus 0,x: want how many"},
		{"run --gpus 0,1 --ranks 2 hi", "--ranks 2 selects CPU devices and --gpus 0,1 selects GPUs"},
		{"run --attention both hi", "--attention both: want tp, dp or auto"},
		{"run --attention= hi", "--attention : want tp, dp or auto"},
		{"run --attention dp hi", "--attention dp selects how ranks share attention, but there is only one rank; " +
			"also give --ranks 2"}, {"serve --attention tp --gpus 1 --port 0",
			"also give --ranks 2 or --gpus 2"}, {"explain --family v3.2 --attention dp", "also give --tp 2"},
		{"explain --family v3.2 --attention=", "want tp, dp or auto"},
		{"bench model --attention dp", "also give --ranks 2"},
		{"run --ranks 2 --kernels cuda hi", "for 2 GPUs give --gpus 2 in place of --ranks"},
		{"run --rank-timeout -1s hi", "--rank-timeout -1s: want a positive time"},
		{"run --experts= hi", "want auto, device, split, host or move"},
		{"run --experts split --gpu-memory 10 hi", `--gpu-memory: "10" is less than 1.0 MiB; give a unit`},
		{"run --step-tokens -1 hi", "--step-tokens -1: want 0"},
		{"run --step-tokens 9223372036854775807 hi", "--step-tokens 9223372036854775807: want at most 2147483647"},
		{"serve --max-running -3 --port 0", "--max-running -3: want 0"},
		{"serve --cache-tokens -1 --context -1 --port 0", "--context -1: want 0"},
		{"eval --limit -1 --tasks talk", "--limit -1: want 0"},
		{"eval --failures -1 --concurrency -4", "--concurrency -4: want 0"},
		{"serve --port abc", "--port abc: want a whole number"},
		{"serve --port 99999999999999999999", "--port 99999999999999999999: the number is too large"},
		{"serve --grace soon", "--grace soon: want a time such as 30s"},
		{"run --temperature hot hi", "--temperature hot: want a number"},
		{"run --think=perhaps hi", "--think perhaps: want true or false"},
		{"inspect --memory x dir", "--memory x: want numbers separated by commas"},
		{"bench kernels --threads two", "--threads two: want whole numbers separated by commas"},
		{"synth x --seed -1", "--seed -1: want a whole number from 0"},
		{"inspect", "inspect: no model was given; want a folder, a GGUF file, a config.json or a name"},
		{"inspect deepseek-v3.2 --gpu-memory 4G", "inspect: --gpu-memory has no effect without --hw"},
		{"bench serve --groups 4", "--groups has no effect without --shared-prefix"},
		{"bench serve --stream-choices 3", "--stream-choices has no effect without --streams"},
		{"bench model --workers -1", "bench model: --workers -1: want 0 or more\n"},
		{"bench model --max-running -1", "bench model: --max-running -1: want 0 or more\n"},
		{"bench model --budget -1s", "bench model: --budget -1s: want a positive time"},
		{"explain foo", "select a model with --model or --family"},
		{"verify a b", "verify: want one folder, but 2 were given (a, b)"},
		{"bench model a b", "model: want one folder"},
		{"bench model --dummy", "bench model: --dummy: no shape was given"},
		{"bench model --memory foo", "bench model: --memory: "},
		{"bench model --ranks 2 --profile", "omit it or --ranks"},
		{"bench model --json --markdown", "cannot be combined"},
		{"bench model --chunk 64 --step-tokens 64", "have the same meaning; give one"},
		{"quantize builtin", "quantize: want a source and a file to write, but 1 arguments were given; use it as: "},
		{"quantize v32-mini x.gguf", "'sparrow synth v32-mini --config v32-mini' writes random ones"},
		{"bench model v32-mini", "--dummy generates them in memory"},
		{"bench model deepseek-v3.2", "'sparrow synth deepseek-v3.2 --config deepseek-v3.2' writes random ones, " +
			"--dummy"},
		{"serve --port 0 --model DeepSeek-V4-Flash", "'sparrow pull deepseek-ai/DeepSeek-V4-Flash' downloads the " +
			"released model, which is then given as --model deepseek-ai/DeepSeek-V4-Flash"},
		{"quantize glm-4.7-flash x.gguf", "which is then given as zai-org/GLM-4.7-Flash"},
		{"pull kimi-k2", "did you mean moonshotai/Kimi-K2-Instruct?"},
		{"quantize builtin nowhere/x.gguf", "there is no folder nowhere"},
		{"quantize builtin x.gguf --type q8_0 --imatrix x", "--imatrix has no effect with --type q8_0"},
		{"quantize builtin x.gguf --type bf16 --calibrate x", "--calibrate has no effect with --type bf16"},
		{"quantize builtin x.gguf --calibrate x --imatrix x", "--imatrix and --calibrate both give the importance"},
		{"quantize builtin x.gguf --calibrate=", "--calibrate has no file name"},
		{"quantize builtin x.gguf --calibrate nothing.txt", "--calibrate: open nothing.txt"},
		{"quantize nobody/nothing x.gguf", "'sparrow pull nobody/nothing' downloads it"},
		{"run --max-tokens -3 hi", "--max-tokens -3: want 0"},
		{"run --rank-timeout 3s hi", "--rank-timeout has no effect without --ranks 2"},
		{"serve --disk-cache-size 3G --port 0", "--disk-cache-size has no effect without --disk-cache"},
		{"serve --tier-wait 1s --port 0", "--tier-wait has no effect without --host-cache"},
		{"serve --transfer-host x --port 0", "--transfer-host has no effect without --role prefill"},
		{"serve --transfer-from 10.0.0.0/8 --role prefill --port 0", "has no effect without --role decode"},
		{"serve --record-bytes -5 --port 0", "--record-bytes -5: want"},
		{"explain --family v3.2 --graph foo", "--graph: "},
		{"explain --family v3.2 --catalog public --hw sm90 --v4-q8", "--v4-q8 applies to DeepSeek-V4"},
		{"inspect a b", "inspect: want one model, but 2 were given (a, b)"},
		{"inspect v32-min", "did you mean v32-mini?"},
		{"inspect kimi", "did you mean kimi-k2?"},
		{"explain --family llama", "supported: deepseek-v3.2, deepseek-v3.2-exp, glm-5, glm-5.1, glm-5.2, "},
		{"inspect nothing-like-it", "releases known by name are deepseek-v3, deepseek-v3.2, deepseek-v4-flash,"},
		{"inspect ./deepseek-v3.2", "there is no such folder"}, // a path is not the name of a release
		{"inspect /models/deepseek-v3.2", "there is no such folder"},
		{"inspect nobody/v32-tiny", "there is no such folder"},
		{"help nope", `no command "nope"; want one of`},
		{"help srve", "did you mean serve?"},
		{"help bench nope", `no command "nope"`},
		{"serve --expert-usage /nodir/u.json --port 0", "usage: /nodir/u.json cannot be written: no such"},
		{"eval --url http://127.0.0.1:1 --kv fp8", "--kv cannot change the server at --url; omit it,"},
		{"eval --url http://127.0.0.1:1 --kv fp8 --workers 1", "--kv, --workers cannot change the server at --url; " +
			"omit them,"},
		{"run --model sp/bi-00002-of-00003.gguf hi", "sp/bi-00002-of-00003.gguf: there is no such file; a"},
		{"verify nope", "verify: nope: there is no such folder or file"},
		{"verify nope.gguf", "verify: nope.gguf: there is no such folder or file"},
		{"verify builtin", "has no golden outputs"},
		{"verify ../../testdata/oracle/deepseek_v32-1/config.json", "this is a file; give the folder it is in"},
		{"bench cluster", `bench: no command "cluster"; want one of`},
		{"quantize builtin main.go", "main.go exists; give another name, or remove it first"},
		{"quantize builtin x.gguf --type q9", "--type: "},
		{"eval --tasks talk --chunk-tokens 3", "--chunk-tokens has no effect without --perplexity"},
		{"bench model --draft-accept 1.5 --draft 3", "--draft-accept 1.5: want a share from 0 to 1"},
		{"bench model --draft-accept 0.5 --draft off", "--draft-accept 0.5: want a share from 0 to 1"},
		{"bench model --draft-accept 0.5", "--draft-accept 0.5: want a share from 0 to 1"},
		{"bench model --ranks 2 --numa", "--numa divides the threads of one device, but --ranks is 2"},
		{"bench model --experts move", "experts move only while requests are served"},
		{"bench serve --url http://127.0.0.1:1 --dummy", "--dummy cannot change the server at --url; omit one of them"},
		{"explain --family v3.2 --layer 99", "--layer 99: the model has layers 0 to 60"},
		{"simulate", "is now a separate program: use go run ./cmd/simulate"},
		{"simulate trace --sessions 3", "is now a separate program: use go run ./cmd/simulate, with the same flags"},
	} {
		status, _, stderr := invoke(strings.Fields(c.args)...)
		if status != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %q; want %q", c.args, status, stderr, c.want)
		}
		for _, inner := range []string{"strconv", "config: ", "options: ", "arg(s)"} {
			if strings.Contains(stderr, inner) {
				t.Errorf("%s: %q shows what is inside", c.args, stderr)
			}
		}
	}
}

// The help of every flag describes the values that the flag accepts, and contains no name of a Go type.
func TestEveryFlagSaysWhatItTakes(t *testing.T) {
	for _, c := range commands(root()) {
		check(t, c)
	}
}

func check(t *testing.T, c *cobra.Command) {
	t.Helper()
	c.Flags().VisitAll(func(f *pflag.Flag) {
		kind := f.Value.Type()
		if kind != "string" && kind != "stringSlice" && wanted[kind] == "" {
			t.Errorf("%s --%s takes a %s, for which there are no words", c.CommandPath(), f.Name, kind)
		}
		if shown, _ := pflag.UnquoteUsage(f); strings.Contains(shown, "Slice") {
			t.Errorf("the help of %s --%s shows %s", c.CommandPath(), f.Name, shown)
		}
	})
}

// If the only model in a folder is one GGUF file, the error names that file.
func TestAFolderOfAGGUFFileNamesIt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "q4.gguf")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := modelFolder(modelFlag, dir); err == nil || !strings.Contains(err.Error(), "--model "+file) {
		t.Errorf("%v", err)
	}
	for i := range 8 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("m%d.gguf", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "contains 9 GGUF files: m0.gguf, m1.gguf, m2.gguf, m3.gguf, m4.gguf, m5.gguf, and 3 more; give one"
	if _, err := modelFolder(modelFlag, dir); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// A GGUF file is recognised as a model by its content, not by its name, and is refused as a shape. inspect prints why
// the model needs more memory than its size on disk.
func TestAGGUFFileIsKnownByItsContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tiny.bin")
	if status, _, stderr := invoke("quantize", "builtin", file, "--type", "q4_0"); status != 0 {
		t.Fatal(stderr)
	}
	if status, stdout, stderr := invoke("inspect", file); status != 0 ||
		!strings.Contains(stdout, "the up-projection of latent rows in two parts") {
		t.Errorf("inspect: status %d, %s%s", status, stdout, stderr)
	}
	if status, _, stderr := invoke("bench", "model", "--dummy", file); status != 1 ||
		!strings.Contains(stderr, "--dummy: "+file+" is a file of weights; want a shape") {
		t.Errorf("bench model --dummy: status %d, %s", status, stderr)
	}
	if dir, err := modelFolder(modelFlag, file); err != nil || dir != file {
		t.Errorf("--model: %q, %v", dir, err)
	}
}

// Durations in JSON log lines include their unit.
func TestJSONLogsNameTheUnitOfDurations(t *testing.T) {
	var b strings.Builder
	log, _, err := newLog(&b, "info", true)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("request", "took", 1500*time.Microsecond)
	if !strings.Contains(b.String(), `"took_ms":1.5`) {
		t.Error(b.String())
	}
}
