package cubin_test

import (
	"strings"
	"testing"

	"sparrow/internal/cuda/cubin"
	"sparrow/internal/cuda/image"
)

func sample(t testing.TB) []byte {
	t.Helper()
	m, err := image.Load()
	if err != nil {
		t.Fatal(err)
	}
	im, _, err := m.Find("write_main_block")
	if err != nil {
		t.Fatal(err)
	}
	code, err := im.Cubin()
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestParseFindsKernelsAndStructs(t *testing.T) {
	im, err := cubin.Parse(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Kernels) != 3 {
		t.Fatalf("%d kernels, want the three writers", len(im.Kernels))
	}
	for _, k := range im.Kernels {
		if !strings.HasPrefix(k.Name, "write_main_") || k.Registers < 16 || k.Registers > 255 || k.MaxThreads != 256 ||
			k.LocalBytes != 0 || k.SharedBytes != 0 {
			t.Errorf("implausible kernel %+v", k)
		}
		if len(k.Params) != 1 || k.Params[0].Size != 120 || k.ParamBytes != 120 {
			t.Errorf("%s: parameters %v of %d bytes, want one of 120", k.Name, k.Params, k.ParamBytes)
		}
	}
	for _, s := range im.Structs {
		if s.Name != "WriteMainArgs" {
			continue
		}
		if s.Size != 120 || len(s.Fields) != 13 || s.Fields[0] != (cubin.Field{Name: "pool", Offset: 0, Size: 24}) ||
			s.Fields[12] != (cubin.Field{Name: "k_scale", Offset: 116, Size: 4}) {
			t.Errorf("WriteMainArgs is %+v", s)
		}
		return
	}
	t.Error("WriteMainArgs is not in the image")
}

func TestParseRefusesWhatIsNoImage(t *testing.T) {
	code := sample(t)
	wrongMachine := append([]byte(nil), code...)
	wrongMachine[18], wrongMachine[19] = 62, 0
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("hello"), "cut off": code[:len(code)/2],
		"another machine": wrongMachine} {
		if _, err := cubin.Parse(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = cubin.Parse(data) // Parse must not panic
	})
}
