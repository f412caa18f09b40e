package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"sparrow/internal/model/synth"
)

func TestSynthWritesWhatRunCanRun(t *testing.T) {
	for _, preset := range []string{"v32-tiny", "glm-tiny", "v4-tiny"} {
		dir := filepath.Join(t.TempDir(), preset)
		out, _ := mustDrive(t, "", "synth", dir, "--config", preset, "--dtype", "fp8", "--nextn", "1", "--seed", "3",
			"--shard-bytes", "1M")
		if !strings.Contains(out, "with the built-in tokenizer") ||
			!strings.Contains(out, "sparrow serve --model "+dir) {
			t.Errorf("%s: it says %q", preset, out)
		}
		answer, side := mustDrive(t, "", "run", "--model", dir, "--cache-tokens", "1024", "--max-tokens", "8",
			"--trace", "Goodbye")
		if !strings.Contains(side, "8 out") || !strings.Contains(side, "finish length") {
			t.Errorf("%s: answer %q\n%s", preset, answer, side)
		}
		if out, side, err := drive("", "synth", dir, "--config", preset); err == nil ||
			!strings.Contains(err.Error(), "choose an empty folder") || out+side != "" {
			t.Errorf("%s: a second time: %v after saying %q", preset, err, out+side)
		}
	}
}

// Writing and opening a checkpoint both print the number of ids for which the tokenizer has no text. Flags without
// effect, and more threads than cores, also cause warnings.
func TestIDsWithoutTextAreSaid(t *testing.T) {
	dir := t.TempDir()
	tiny, wide := filepath.Join(dir, "tiny"), filepath.Join(dir, "wide")
	if out, _ := mustDrive(t, "", "synth", tiny, "--config", "v32-tiny"); strings.Contains(out, "no text") {
		t.Errorf("the vocabulary is the tokenizer's: %q", out)
	}
	text, err := os.ReadFile(filepath.Join(tiny, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	larger := regexp.MustCompile(`"vocab_size": 1280`).ReplaceAll(text, []byte(`"vocab_size": 2000`))
	if err := os.WriteFile(config, larger, 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "720 of 2000 ids have no text"
	if out, _ := mustDrive(t, "", "synth", wide, "--config", config); !strings.Contains(out, want) {
		t.Errorf("synth says %q", out)
	}
	for _, c := range []struct {
		model string
		warns bool
	}{{tiny, false}, {wide, true}} {
		_, side := mustDrive(t, "", "run", "--model", c.model, "--kernels", "cpu", "--max-tokens", "4", "Goodbye")
		if strings.Contains(side, want) != c.warns {
			t.Errorf("%s: run says %q", c.model, side)
		}
	}
	many := strconv.Itoa(runtime.NumCPU() + 1)
	_, side := mustDrive(t, "", "run", "--kernels", "cpu", "--no-graphs", "--workers", many, "Goodbye")
	for _, want := range []string{"--no-graphs has no effect on a CPU",
		"--workers " + many + ": this process may use"} {
		if !strings.Contains(side, want) {
			t.Errorf("%q lacks %q", side, want)
		}
	}
}

func TestSynthDryRunWritesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "full")
	out, _ := mustDrive(t, "", "synth", dir, "--config", "deepseek-v3.2", "--dtype", "fp8", "--dry-run", "--json")
	var got synthResult
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Parameters != 685_355_329_792 ||
		got.Bytes != 689_469_018_240 || got.Written {
		t.Errorf("%+v, %v", got, err)
	}
	if text, _ := mustDrive(t, "", "synth", dir, "--config", "v32-mini", "--dry-run"); !strings.Contains(text,
		"nothing was written") {
		t.Errorf("it says %q", text)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is there")
	}
}

func TestSynthTakesFilesAndFolders(t *testing.T) {
	text, err := synth.PresetConfig("v32-tiny")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "config.json")
	small := bytes.Replace(text, []byte(`"vocab_size": 1280`), []byte(`"vocab_size": 100`), 1)
	if err := os.WriteFile(file, small, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{file, folder} {
		dir := filepath.Join(t.TempDir(), "out")
		if out, _ := mustDrive(t, "", "synth", dir, "--config", from); !strings.Contains(out, "without a tokenizer") {
			t.Errorf("%s: it says %q", from, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err == nil {
			t.Error("a tokenizer of 1280 tokens lies beside a vocabulary of 100")
		}
	}
}

func TestSynthFailsWithAReason(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"v32-mini", nil},
		{"neither a file nor one of", []string{"--config", "v33"}},
		{"--dtype", []string{"--config", "v32-tiny", "--dtype", "int3"}},
		{"--shard-bytes", []string{"--config", "v32-tiny", "--shard-bytes", "many"}},
		{"--nextn 2", []string{"--config", "v32-tiny", "--nextn", "2"}},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		if _, _, err := drive("", append([]string{"synth", dir}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want it to say %q", c.args, err, c.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%v left a folder", c.args)
		}
	}
}

func TestInterruptedSynthSaysSoAndLeavesNothing(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	parent := t.TempDir()
	var out, side bytes.Buffer
	if status := run(ctx, []string{"synth", filepath.Join(parent, "x"), "--config", "v32-tiny"}, &out,
		&side); status != 130 || !strings.Contains(side.String(), "interrupted; nothing was left") {
		t.Errorf("status %d, %q", status, &side)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}
