package inspect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/model/inspect"
	"sparrow/internal/testkit/archive"
	"sparrow/kernel/ref"
)

// A repacked checkpoint has as many parameters as the same checkpoint with plain weights, is loaded without reading
// matrices, and names its format.
func TestPackedParameters(t *testing.T) {
	const base = "../../../testdata/oracle/deepseek_v32-1/model.safetensors"
	dir := filepath.Join(archive.Unpack(t, "../../../testdata/oracle/formats-1.tar.gz"), "formats-1", "checkpoints")
	plain := summary(t, filepath.Dir(base)).Parameters
	for name, format := range map[string]string{"nvfp4-modelopt": "NVFP4",
		"int4-int8-compressed":   "int4 in groups of 32, int8 in groups of 32",
		"fp8-channel-compressed": "FP8 with a scale for each channel"} {
		data, err := os.ReadFile(base)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name, "base.safetensors"), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := summary(t, filepath.Join(dir, name))
		if s.Parameters.Total != plain.Total || s.Parameters.Active != plain.Active || s.Parameters.Scales == 0 {
			t.Errorf("%s: %+v, want %+v and scales", name, s.Parameters, plain)
		}
		var text strings.Builder
		s.Print(&text)
		if !strings.Contains(text.String(), format) {
			t.Errorf("%s: %s does not name %q", name, &text, format)
		}
	}
}

func summary(t *testing.T, dir string) *inspect.Summary {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	s := inspect.Of(src, nil)
	if err := s.Check(src, &ref.Device{}); err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	return s
}
