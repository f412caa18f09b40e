package sparrow

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/usage"
)

// Expert choices are counted exactly, also across sleep and several engines, and saved when the engine closes: each
// computed token chooses two of eight experts in each of two layers.
func TestExpertUsageIsCountedAndSaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage.json")
	const prompt, output = 30, 5
	computed := 0.0
	for round, ranks := range []int{1, 2} {
		e, err := Open(context.Background(), Config{Model: tinyFP8, ExpertUsage: file, NoReuse: true, Workers: 1,
			CacheTokens: 1024, Ranks: ranks})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if _, err := e.Generate(context.Background(), Request{Tokens: tokens(i, prompt), Sampling: greedy(),
				MaxTokens: output, IgnoreEOS: true}); err != nil {
				t.Fatal(err)
			}
			computed += prompt + output - 1
			if err := e.Sleep(context.Background(), false); err != nil {
				t.Fatal(err)
			}
			if err := e.Wake(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		u, err := usage.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, layer := range []int{1, 2} {
			if got := u.Choices(layer); got != 2*computed {
				t.Errorf("round %d: %v choices in layer %d, want %v", round, got, layer, 2*computed)
			}
		}
		if u.Choices(0) != 0 {
			t.Errorf("layer 0 has no experts and %v choices", u.Choices(0))
		}
	}
}

// A usage file of another model, a file of another kind, and a folder that does not exist are refused before anything
// is loaded.
func TestExpertUsageOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	other, broken := filepath.Join(dir, "other.json"), filepath.Join(dir, "broken.json")
	if err := usage.New("deepseek_v4", 43, 256, 6).Save(other); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{other: "counts of deepseek_v4 with 43 layers", broken: "not a usage file",
		filepath.Join(dir, "missing", "x.json"): "no such file"} {
		e, err := Open(context.Background(), Config{Model: tinyFP8, ExpertUsage: file})
		if err == nil {
			e.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
