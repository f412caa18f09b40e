package compile

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/internal/cuda/image"
)

func TestStructsAreFoundInPlainC(t *testing.T) {
	source := `
// struct CommentArgs { int no; };
struct PoolView { u8* base; i64 page_bytes; /* struct
  HiddenArgs {} */ i32 a, b; };
struct Other { int x; };
namespace op {
constexpr int twice(int n) { return 2 * n; }
struct alignas(64) RunArgs {
    TensorMap map;       // first
    const float* const* scores[2][3];
    static constexpr int kOne = 1;
    PoolView pool;
};
struct ForwardArgs;
}
void use(struct PoolView v);
struct LastArgs { float v; };
`
	got, err := findStructs(source)
	if err != nil {
		t.Fatal(err)
	}
	want := []argStruct{
		{"PoolView", "PoolView", []string{"base", "page_bytes", "a", "b"}},
		{"RunArgs", "op::RunArgs", []string{"map", "scores", "pool"}},
		{"LastArgs", "LastArgs", []string{"v"}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(argStruct{})); d != "" {
		t.Errorf("structs (-want +got):\n%s", d)
	}
	const facts = `extern "C" __device__ unsigned sparrow_struct__TwoArgs[1] = {sizeof(op::TwoArgs)};
extern "C" __device__ unsigned sparrow_field__TwoArgs__0__a[2] = ` +
		`{(unsigned)__INTADDR__(&((op::TwoArgs*)0)->a), sizeof(((op::TwoArgs*)0)->a)};
extern "C" __device__ unsigned sparrow_field__TwoArgs__1__b[2] = ` +
		`{(unsigned)__INTADDR__(&((op::TwoArgs*)0)->b), sizeof(((op::TwoArgs*)0)->b)};
extern "C" __device__ unsigned sparrow_struct__NoneView[1] = {sizeof(NoneView)};
`
	two := argStruct{"TwoArgs", "op::TwoArgs", []string{"a", "b"}}
	if d := cmp.Diff(facts, factSource([]argStruct{two, {"NoneView", "NoneView", nil}})); d != "" {
		t.Errorf("facts (-want +got):\n%s", d)
	}
}

// Namespaces and other scopes end with their braces. A declaration or a use of a struct is not a definition.
func TestScopesOfStructs(t *testing.T) {
	got, err := findStructs(`namespace a { namespace b { struct OneArgs { int x; }; } struct TwoView { int y; }; }
} struct ThreeArgs { int z; };
inline void f() { struct Local { int n; }; struct FourArgs { int w; }; }
struct FiveArgs five(struct SixArgs s); namespace alias = a; struct SevenArgs {};
struct TooManyWordsBeforeTheBrace of many words in a row EightArgs { int v; };
struct NineArgs`)
	if err != nil {
		t.Fatal(err)
	}
	want := []argStruct{{"OneArgs", "a::b::OneArgs", []string{"x"}}, {"TwoView", "a::TwoView", []string{"y"}},
		{"ThreeArgs", "ThreeArgs", []string{"z"}}, {"FourArgs", "FourArgs", []string{"w"}},
		{"SevenArgs", "SevenArgs", nil}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(argStruct{})); d != "" {
		t.Errorf("structs (-want +got):\n%s", d)
	}
}

func TestStructsThatAreNotPlainCAreRefused(t *testing.T) {
	for source, want := range map[string]string{
		"struct XArgs { int f() { return 1; } };": `compile: struct XArgs: member "int f() { return 1" is not a ` +
			"plain C member (a type and names)",
		"struct YArgs { int a : 3; };": `compile: struct YArgs: member "int a : 3" is not a plain C member ` +
			"(a type and names)",
		"struct ZArgs { int a;":      "compile: struct ZArgs does not end",
		"struct WArgs { int a, 5; }": `compile: struct WArgs: member "int a, 5" has no name`,
	} {
		if got, err := findStructs(source); err == nil || err.Error() != want {
			t.Errorf("%s: found %v, %v; want %s", source, got, err, want)
		}
	}
}

// Toolkits are searched before environments, and the working folder before the home folder and the system. The newest
// file of the best place is used.
func TestTheOrderOfFolders(t *testing.T) {
	list := usualFolders("/w", "/h")
	toolkits := []string{"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/opt/cuda/lib64"}
	rest := []string{"/w/.venv", "/w/venv", "/h/.local", "/usr/local", "/usr"}
	if n := len(list) - len(rest); n < len(toolkits) || cmp.Diff(toolkits, list[:len(toolkits)]) != "" ||
		cmp.Diff(rest, list[n:]) != "" {
		t.Errorf("folders %q", list)
	}
	if list := usualFolders("/w", ""); cmp.Diff([]string{"/w/.venv", "/w/venv", "/usr/local", "/usr"},
		list[len(list)-4:]) != "" {
		t.Errorf("without a home folder %q", list)
	}
	folder := t.TempDir()
	for _, where := range []string{"lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
		"lib/python3.12/dist-packages/nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.13",
		"nvidia/cu13/lib/libnvrtc.so.13", "lib64/libnvrtc.so", "lib64/libnvrtc.so.13", "libnvrtc.so",
		"libnvrtc.so.13"} {
		place(t, filepath.Join(folder, where))
	}
	for _, want := range []string{"libnvrtc.so.13", "libnvrtc.so", "lib64/libnvrtc.so.13", "lib64/libnvrtc.so",
		"nvidia/cuda_nvrtc/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc.so.13",
		"lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
		"lib/python3.12/dist-packages/nvidia/cu13/lib/libnvrtc.so.13", ""} {
		if want != "" {
			want = filepath.Join(folder, want)
		}
		if got := findIn(folder); got != want {
			t.Errorf("found %q, want %q", got, want)
		}
		if err := os.RemoveAll(want); err != nil {
			t.Fatal(err)
		}
	}
}

// place creates an empty file with its folders.
func place(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNVRTCIsFoundInToolkitsAndWheels(t *testing.T) {
	never := func(string) bool { return false }
	for _, where := range []string{
		"libnvrtc.so.13",
		"lib64/libnvrtc.so",
		"nvidia/cu13/lib/libnvrtc.so.13",
		"lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
	} {
		folder := t.TempDir()
		want := place(t, filepath.Join(folder, where))
		if got, err := FindNVRTC(folder, never); err != nil || got != want {
			t.Errorf("%s: got %q, %v", where, got, err)
		}
	}
	_, err := FindNVRTC(t.TempDir(), never)
	if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "pip install nvidia-cuda-nvrtc") {
		t.Errorf("a folder without it gave %v, want how to get it", err)
	}
}

func TestBuiltinsLieBesideTheLibrary(t *testing.T) {
	folder := t.TempDir()
	lib, builtins := place(t, filepath.Join(folder, "libnvrtc.so.13")),
		place(t, filepath.Join(folder, "libnvrtc-builtins.so.13.0"))
	if d := cmp.Diff([]string{builtins}, builtinsFor(lib)); d != "" {
		t.Error(d)
	}
	if got := builtinsFor("libnvrtc.so.13"); got != nil {
		t.Errorf("a bare name has builtins %v; the dynamic linker finds them", got)
	}
}

func TestBuildSaysWhatIsMissing(t *testing.T) {
	src, out := t.TempDir(), t.TempDir()
	if err := Build(Config{Source: src, Out: out, Log: io.Discard}); err == nil ||
		!strings.Contains(err.Error(), "no .cu file") {
		t.Errorf("an empty tree gave %v", err)
	}
	place(t, filepath.Join(src, "smxx/op/instantiations/a.cu"))
	if err := Build(Config{Source: src, Out: out, NVRTC: t.TempDir(), Log: io.Discard}); !errors.Is(err,
		ErrNoCompiler) {
		t.Errorf("without a compiler: %v", err)
	}
}

// An image whose hash is recorded needs no compiler, unless it is forced. A manifest that cannot be read completely
// counts as empty.
func TestOnlyChangedImagesNeedACompiler(t *testing.T) {
	const unit = "smxx/op/instantiations/a.cu"
	src := t.TempDir()
	place(t, filepath.Join(src, unit))
	files, err := image.Files(os.DirFS(src), unit)
	if err != nil {
		t.Fatal(err)
	}
	im := image.Image{Name: image.NameOf(unit), Source: unit, Target: image.Target(unit), Options: image.Options(),
		Files: files, Hash: image.HashOf(unit, files), PTX: image.Portable(unit)}
	text, err := json.Marshal(image.Manifest{Images: []image.Image{im}})
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	for _, c := range []struct {
		name, manifest string
		force          bool
		is             error
	}{
		{"recorded", good, false, nil},
		{"forced", good, true, ErrNoCompiler},
		{"another hash", strings.Replace(good, im.Hash, "00", 1), false, ErrNoCompiler},
		{"truncated", good[:len(good)-1], false, ErrNoCompiler},
		{"a number in place of kernels", strings.Replace(good, `"kernels":null`, `"kernels":5`, 1), false,
			ErrNoCompiler},
	} {
		out := t.TempDir()
		place(t, filepath.Join(out, image.CubinFile(im.Name)))
		place(t, filepath.Join(out, image.PTXFile(im.Name)))
		if err := os.WriteFile(filepath.Join(out, "manifest.json"), []byte(c.manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		err := Build(Config{Source: src, Out: out, NVRTC: t.TempDir(), Force: c.force, Log: io.Discard})
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
		}
	}
}

// If a CUDA compiler is installed, all steps are tested: compiling, recording, skipping images that are up to date, and
// removing stale images.
func TestBuildCompilesWhatChanged(t *testing.T) {
	if _, err := FindNVRTC("", loadable); err != nil {
		t.Skipf("no NVRTC on this machine: %v", err)
	}
	src, out := t.TempDir(), t.TempDir()
	unit := place(t, filepath.Join(src, "smxx/op/instantiations/a.cu"))
	write := func(text string) {
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("struct AArgs { int* p; int n; };\nextern \"C\" __global__ void fill(const __grid_constant__ AArgs a) { " +
		"a.p[threadIdx.x] = a.n; }\n")
	var log strings.Builder
	if err := Build(Config{Source: src, Out: out, Log: &log}); err != nil {
		t.Fatal(err)
	}
	m := readManifest(out)
	if len(m.Images) != 1 || m.Images[0].Kernels[0].Name != "fill" || m.Images[0].Structs[0].Size != 16 ||
		m.Images[0].Structs[0].Fields[1].Offset != 8 {
		t.Errorf("manifest %+v", m)
	}
	log.Reset()
	if err := Build(Config{Source: src, Out: out, Log: &log}); err != nil || log.Len() != 0 {
		t.Errorf("a second build did something: %v %s", err, log.String())
	}
	write("this is no C++")
	if err := Build(Config{Source: src, Out: out, Log: &log}); err == nil ||
		!strings.Contains(err.Error(), "smxx-op-a") {
		t.Errorf("bad source gave %v", err)
	}
	if stale := readManifest(out); len(stale.Images) != 1 || stale.Images[0].Hash != m.Images[0].Hash {
		t.Errorf("a failed source must keep its old image, stale: %+v", stale)
	}
	moved := filepath.Join(filepath.Dir(unit), "b.cu")
	if err := os.Rename(unit, moved); err != nil {
		t.Fatal(err)
	}
	unit = moved
	write("extern \"C\" __global__ void nothing() {}\n")
	if err := Build(Config{Source: src, Out: out, Log: &log}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(out, "*.cubin.gz"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "smxx-op-b.cubin.gz" {
		t.Errorf("after a source was renamed the images are %v, %v", left, err)
	}
}
