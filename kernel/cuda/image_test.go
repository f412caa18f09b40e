package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/internal/cuda/cubin"
	"sparrow/internal/cuda/image"
)

// loadManifest returns the embedded manifest.
func loadManifest(t *testing.T) *image.Manifest {
	t.Helper()
	m, err := image.Load()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEveryImageIsCompiledFromTheSourcesThatAreHere(t *testing.T) {
	root := os.DirFS("src")
	sources, err := image.Sources(root)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*image.Image{}
	m := loadManifest(t)
	for i := range m.Images {
		byName[m.Images[i].Name] = &m.Images[i]
	}
	for _, src := range sources {
		im := byName[image.NameOf(src)]
		delete(byName, image.NameOf(src))
		if im == nil {
			t.Errorf("%s has no image: run make kernels", src)
			continue
		}
		files, err := image.Files(root, src)
		if err != nil {
			t.Error(err)
			continue
		}
		if image.HashOf(src, files) != im.Hash {
			t.Errorf("image %s is older than its sources (%s): run make kernels", im.Name, cmp.Diff(im.Files, files))
		}
	}
	for name := range byName {
		t.Errorf("image %s has no source: run make kernels", name)
	}
}

func TestEmbeddedFilesAreThoseOfTheManifest(t *testing.T) {
	want := map[string]bool{"manifest.json": true}
	for _, im := range loadManifest(t).Images {
		if im.Native() {
			want[image.CubinFile(im.Name)] = true
		}
		if im.PTX {
			want[image.PTXFile(im.Name)] = true
		}
	}
	got := map[string]bool{}
	for _, pattern := range []string{"*.gz", "*.json"} { // the files that package image embeds
		names, err := filepath.Glob(filepath.Join("..", "..", "internal", "cuda", "image", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			got[filepath.Base(n)] = true
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("embedded files (-manifest +embedded):\n%s", d)
	}
}

func TestManifestAgreesWithTheMachineCode(t *testing.T) {
	for _, im := range loadManifest(t).Images {
		for _, k := range im.Kernels {
			if k.LocalBytes != 0 {
				t.Errorf("%s: kernel %s spills: %d bytes of local memory", im.Name, k.Name, k.LocalBytes)
			}
			if len(k.Params) != 1 {
				t.Errorf("%s: kernel %s takes %d parameters, want one argument struct", im.Name, k.Name, len(k.Params))
			}
		}
		if im.PTX {
			checkPTX(t, &im)
		}
		if !im.Native() {
			continue
		}
		code, err := im.Cubin()
		if err != nil {
			t.Error(err)
			continue
		}
		facts, err := cubin.Parse(code)
		if err != nil {
			t.Errorf("%s: %v", im.Name, err)
			continue
		}
		if d := cmp.Diff(im.Kernels, facts.Kernels); d != "" {
			t.Errorf("%s: kernels (-manifest +image):\n%s", im.Name, d)
		}
		if d := cmp.Diff(im.Structs, facts.Structs); d != "" {
			t.Errorf("%s: structs (-manifest +image):\n%s", im.Name, d)
		}
	}
}

// newer lists parts of instruction names that require more than compute capability 8.0. The assembler would reject
// these instructions too, but this test does not need an assembler.
var newer = []string{"wgmma", "tcgen05", "griddepcontrol", "cp.async.bulk", "cluster", "mapa", "setmaxnreg", "stmatrix",
	"elect.sync", "multimem", "fence.proxy.async", "try_wait", "st.async", "red.async", "e4m3", "e5m2", "e2m1x2",
	"mul.rn.bf16", "add.rn.bf16", "tensormap"}

// newerCodes lists the entries of newer that PTX for compute capability 8.9 may contain.
var newerCodes = []string{"e4m3", "e5m2"}

// checkPTX checks that an image has no instruction that a device of its lowest compute capability lacks.
func checkPTX(t *testing.T, im *image.Image) {
	t.Helper()
	text, err := im.Text()
	if err != nil {
		t.Error(err)
		return
	}
	for _, k := range im.Kernels {
		if !strings.Contains(string(text), ".entry "+k.Name+"(") {
			t.Errorf("%s: PTX has no entry %s", im.Name, k.Name)
		}
	}
	first := image.FirstCapability(im.Source)
	for _, line := range []string{fmt.Sprintf("\n.target sm_%d\n", first), "\n.version " + image.PTXVersion + "\n"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("%s: PTX has no line %q", im.Name, strings.TrimSpace(line))
		}
	}
	for line := range strings.Lines(string(text)) {
		// An instruction begins with a letter after a tab; other lines contain names, which may include these words.
		word := strings.TrimLeft(line, "\t ")
		i := strings.IndexAny(word, "\t ")
		if i > 0 && !strings.HasPrefix(word, ".") && !strings.HasPrefix(word, "//") {
			for _, part := range newer {
				if strings.Contains(word[:i], part) && (first < 89 || !slices.Contains(newerCodes, part)) {
					t.Errorf("%s: PTX for sm_%d has %s", im.Name, first, strings.TrimSpace(line))
				}
			}
		}
	}
}

// plain converts a C or Go field name to a form in which both are equal.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func TestArgumentStructsMatchTheDeviceCompiler(t *testing.T) {
	mirrors := Mirrors()
	sizes := map[int]bool{}
	unseen := map[string]bool{}
	for name := range mirrors {
		unseen[name] = true
	}
	for _, im := range loadManifest(t).Images {
		for _, s := range im.Structs {
			delete(unseen, s.Name)
			sizes[s.Size] = true
			mirror, ok := mirrors[s.Name]
			if !ok {
				t.Errorf("%s: struct %s has no Go mirror", im.Name, s.Name)
				continue
			}
			compareStruct(t, im.Name, s, mirror)
		}
		for _, k := range im.Kernels {
			for _, p := range k.Params {
				if !sizes[p.Size] {
					t.Errorf("%s: kernel %s takes %d bytes, the size of no struct of the image", im.Name, k.Name,
						p.Size)
				}
			}
		}
	}
	for name := range unseen {
		t.Errorf("mirror %s belongs to no struct of any image", name)
	}
}

func compareStruct(t *testing.T, where string, s cubin.Struct, mirror reflect.Type) {
	t.Helper()
	if int(mirror.Size()) != s.Size {
		t.Errorf("%s: %s has %d bytes, the Go mirror %d", where, s.Name, s.Size, mirror.Size())
	}
	fields := reflect.VisibleFields(mirror)
	if last := len(fields) - 1; fields[last].Name == "_" { // padding, which the device compiler adds implicitly
		fields = fields[:last]
	}
	if len(fields) != len(s.Fields) {
		t.Errorf("%s: %s has %d fields, the Go mirror %d", where, s.Name, len(s.Fields), len(fields))
		return
	}
	for i, f := range s.Fields {
		g := fields[i]
		if plain(f.Name) != plain(g.Name) || f.Offset != int(g.Offset) || f.Size != int(g.Type.Size()) {
			t.Errorf("%s: %s field %d is %s at %d (%d bytes), the Go mirror has %s at %d (%d bytes)",
				where, s.Name, i, f.Name, f.Offset, f.Size, g.Name, g.Offset, g.Type.Size())
		}
	}
}

func TestUnknownKernelIsNamed(t *testing.T) {
	if _, _, err := loadManifest(t).Find("no_such_kernel"); err == nil ||
		!strings.Contains(err.Error(), "no_such_kernel") {
		t.Errorf("got %v", err)
	}
	if _, k, err := loadManifest(t).Find("write_main_block"); err != nil || k.ParamBytes == 0 {
		t.Errorf("write_main_block: %v %v", k, err)
	}
}
