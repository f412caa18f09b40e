package image

import (
	"errors"
	"testing"

	"sparrow/internal/cuda/cubin"
)

// A kernel that exists as machine code and as PTX is found as machine code, wherever it is in the manifest.
func TestMachineCodeIsFoundFirst(t *testing.T) {
	m := &Manifest{Images: []Image{
		{Name: "ptx", Source: "sm80/a/instantiations/a.cu", Kernels: []cubin.Kernel{{Name: "k"}, {Name: "other"}}},
		{Name: "native", Source: "sm90/a/instantiations/a.cu", Kernels: []cubin.Kernel{{Name: "first"}, {Name: "k"}}}}}
	for kernel, want := range map[string]string{"k": "native", "first": "native", "other": "ptx"} {
		im, k, err := m.Find(kernel)
		if err != nil || im.Name != want || k.Name != kernel {
			t.Errorf("%s: found %+v in %+v, %v; want it in %s", kernel, k, im, err, want)
		}
	}
	if _, _, err := m.Find("absent"); !errors.Is(err, ErrUnknown) || err.Error() !=
		`kernel "absent": image: not in this build` {
		t.Errorf("a kernel of no image: %v", err)
	}
	for _, im := range m.Images {
		_, err := im.Text()
		want := `PTX of image "` + im.Name + `": image: not in this build`
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	const missing = `machine code of image "ptx": image: not in this build`
	if _, err := m.Images[0].Cubin(); err == nil || err.Error() != missing {
		t.Error(err)
	}
}

// Hashes stay the same, so that images are not compiled again after a change of this package.
func TestHashes(t *testing.T) {
	files := []File{{Path: "a.cu", SHA256: "01"}, {Path: "b.h", SHA256: "02"}}
	for source, want := range map[string]string{
		"sm90/a/instantiations/a.cu": "5572fc6f80bbd24e95284650be0314d6fa9c64ab969687d7636a50709ba7e732",
		"sm80/a/instantiations/a.cu": "56a9745807188a994bbba324a2fe7e146138bcbe3875661c052e488de0dd0e32",
		"sm89/a/instantiations/a.cu": "cc5ade696e8764e4b9529aa35f45fd35b41b2004346f62d47099e18456db0bfd",
		"smxx/a/instantiations/a.cu": "86b7c741c2ac10cf0d4ad23230514e9d048975187730bca77d3b6fe18cde0fcb",
	} {
		if got := HashOf(source, files); got != want {
			t.Errorf("%q: %q", source, got)
		}
	}
	for source, want := range map[string][2]bool{"sm90/a/instantiations/a.cu": {true, false},
		"sm80/a/instantiations/a.cu": {false, true}, "sm89/a/instantiations/a.cu": {false, true},
		"smxx/a/instantiations/a.cu": {true, true}} {
		if got := [2]bool{Native(source), Portable(source)}; got != want {
			t.Errorf("%s: machine code %v, PTX %v", source, got[0], got[1])
		}
	}
	for source, want := range map[string]bool{"smxx/packed/instantiations/q4.cu": true,
		"smxx/a/instantiations/packed.cu": false, "packed/a/instantiations/a.cu": false} {
		if Deferred(source) != want {
			t.Errorf("%s is deferred: %v", source, !want)
		}
	}
}
