package image

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func tree() fstest.MapFS {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	return fstest.MapFS{
		"sm90/op/instantiations/a.cu": file("#include \"sm90/op/kernel.cuh\"\n#include <cuda.h>\n"),
		"sm90/op/kernel.cuh":          file("  #  include \"config.h\"\n#include \"ptx/types.h\"\n"),
		"sm90/op/config.h":            file("#include \"ptx/types.h\"\n// #include \"absent.h\" is only a comment\n"),
		"ptx/types.h":                 file("typedef int i32;\n"),
		"sm90/op/notes.cu":            file("not in an instantiations folder"),
	}
}

func TestFilesFollowsIncludesOnce(t *testing.T) {
	sources, err := Sources(tree())
	if err != nil || len(sources) != 1 || sources[0] != "sm90/op/instantiations/a.cu" {
		t.Fatalf("sources %v, %v", sources, err)
	}
	files, err := Files(tree(), sources[0])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	if d := cmp.Diff([]string{"sm90/op/instantiations/a.cu", "sm90/op/kernel.cuh", "sm90/op/config.h", "ptx/types.h"},
		got); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
}

func TestMissingIncludeIsNamed(t *testing.T) {
	root := tree()
	delete(root, "ptx/types.h")
	if _, err := Files(root, "sm90/op/instantiations/a.cu"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestHashChangesWithEverythingAnImageDependsOn(t *testing.T) {
	hash := func(target string, options []string, change func(fstest.MapFS)) string {
		root := tree()
		change(root)
		files, err := Files(root, "sm90/op/instantiations/a.cu")
		if err != nil {
			t.Fatal(err)
		}
		return Hash(target, options, files)
	}
	same := func(fstest.MapFS) {}
	base := hash("sm_90a", Options(), same)
	if hash("sm_90a", Options(), same) != base {
		t.Error("equal inputs give different hashes")
	}
	if hash("sm_90a", Options(), func(m fstest.MapFS) { m["sm90/op/notes.cu"].Data = []byte("changed") }) != base {
		t.Error("a file that is not included changes the hash")
	}
	for name, h := range map[string]string{
		"target":  hash("sm_90", Options(), same),
		"options": hash("sm_90a", append(Options(), "-G"), same),
		"source": hash("sm_90a", Options(), func(m fstest.MapFS) {
			m["sm90/op/instantiations/a.cu"].Data = append(m["sm90/op/instantiations/a.cu"].Data, "int more;\n"...)
		}),
		"header": hash("sm_90a", Options(), func(m fstest.MapFS) {
			m["ptx/types.h"].Data = []byte("typedef long i64;\n")
		}),
	} {
		if h == base {
			t.Errorf("a change of the %s does not change the hash", name)
		}
	}
}

// Only comments, blank lines and blanks at the ends of lines are left out of what is hashed. Text in literals is not a
// comment.
func TestCommentsAreNotHashed(t *testing.T) {
	for source, want := range map[string]string{
		"int a;  // shape [n]\n\n  int b; \n":  "int a;\n  int b;\n",
		"// header\nint a;":                    "int a;\n",
		"int/* of rows */a; /* two\nlines */":  "int a;\n",
		"int a; /* not closed":                 "int a;\n",
		`asm("// kept /* too */ \" // kept");`: `asm("// kept /* too */ \" // kept");` + "\n",
		`char q = '"'; // gone`:                `char q = '"';` + "\n",
		`char q = '\''; int b = 4 / 2;`:        `char q = '\''; int b = 4 / 2;` + "\n",
		`s = "not closed // kept`:              `s = "not closed // kept` + "\n",
		"":                                     "",
		"#include \"a.h\"  // types\n":         "#include \"a.h\"\n",
	} {
		if got := string(code([]byte(source))); got != want {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
}

func TestNamesAndTargetsComeFromThePath(t *testing.T) {
	for src, want := range map[string][2]string{
		"sm90/topk/instantiations/t512.cu":   {"sm90-topk-t512", "sm_90a"},
		"smxx/cache/instantiations/write.cu": {"smxx-cache-write", "sm_90"},
		"sm80/topk/instantiations/topk.cu":   {"sm80-topk-topk", "sm_80"},
		"sm89/index/instantiations/h64.cu":   {"sm89-index-h64", "sm_89"},
	} {
		if got := [2]string{NameOf(src), Target(src)}; got != want {
			t.Errorf("%s: %v, want %v", src, got, want)
		}
	}
	if Portable("sm90/topk/instantiations/t512.cu") || !Portable("smxx/cache/instantiations/write.cu") {
		t.Error("only code outside an architecture's folder is portable")
	}
	const newer, older = "sm89/index/instantiations/h64.cu", "sm80/index/instantiations/h64.cu"
	if InPlaceOf(newer) != NameOf(older) || InPlaceOf(older) != "" || PTXTarget(newer) != "compute_89" ||
		PTXTarget(older) != "compute_80" || Native(newer) || !Portable(newer) {
		t.Errorf("%s takes the place of %q, PTX for %s", newer, InPlaceOf(newer), PTXTarget(newer))
	}
}

func TestUnknownImagesAreRefused(t *testing.T) {
	if _, err := (&Image{Name: "absent"}).Cubin(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := (&Image{Name: "absent"}).Text(); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}
