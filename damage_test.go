package sparrow

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If a tensor contains a NaN, the error names that tensor, whether the tensor is used before or after experts are
// chosen.
func TestDamagedWeightsAreNamed(t *testing.T) {
	notUnderRace(t)
	for _, name := range []string{"model.layers.2.self_attn.q_a_proj.weight_scale_inv", "lm_head.weight",
		"model.norm.weight"} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("builtin")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "model.safetensors")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		size := binary.LittleEndian.Uint64(data)
		var header map[string]struct {
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(data[8:8+size], &header); err != nil {
			t.Fatal(err)
		}
		// These bytes are a NaN both as F32 and as BF16.
		copy(data[8+size+header[name].Offsets[0]:], "\xc0\x7f\xc0\x7f")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		e := start(t, Config{Model: dir})
		_, err = e.Generate(context.Background(), Request{Chat: ask(garden), Sampling: greedy()})
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "element 0 of tensor "+name) ||
			strings.Contains(err.Error(), "worker") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
