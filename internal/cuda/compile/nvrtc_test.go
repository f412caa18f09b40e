//go:build linux && amd64 && !nocuda

package compile

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"sparrow/internal/cuda/image"
)

// fakeNVRTC has the functions of a compiler that returns given results, and records the calls.
type fakeNVRTC struct {
	cubin, ptx, log string
	fail            string // call that returns status 5
	calls           []string
	open            int // programs that were created and not destroyed
}

const fakeProgram = 77

func (f *fakeNVRTC) status(call string) int32 {
	if call == f.fail {
		return 5
	}
	return 0
}

// called records a call for the program.
func (f *fakeNVRTC) called(call string, program uintptr) int32 {
	if program != fakeProgram {
		f.calls = append(f.calls, fmt.Sprintf("%s of program %d", call, program))
	}
	return f.status(call)
}

func (f *fakeNVRTC) compiler() *compiler {
	size := func(call string, text *string) func(uintptr, *uint64) int32 {
		return func(p uintptr, n *uint64) int32 {
			*n = uint64(len(*text))
			return f.called(call+" size", p)
		}
	}
	data := func(call string, text *string) func(uintptr, *byte) int32 {
		return func(p uintptr, to *byte) int32 {
			copy(unsafe.Slice(to, len(*text)), *text)
			return f.called(call, p)
		}
	}
	return &compiler{
		version: func(major, minor *int32) int32 { *major, *minor = 13, 2; return f.status("version") },
		message: func(code int32) string { return fmt.Sprintf("NVRTC_ERROR_%d", code) },
		create: func(p *uintptr, source, name string, headers int32, sources, names uintptr) int32 {
			*p = fakeProgram
			f.open++
			f.calls = append(f.calls, fmt.Sprintf("%s %d %d %d\n%s", name, headers, sources, names, source))
			return f.status("create")
		},
		destroy: func(p *uintptr) int32 { f.open--; return f.called("destroy", *p) },
		compile: func(p uintptr, count int32, options **byte) int32 {
			for _, o := range unsafe.Slice(options, count) {
				n := 0
				for *(*byte)(unsafe.Add(unsafe.Pointer(o), n)) != 0 {
					n++
				}
				f.calls = append(f.calls, unsafe.String(o, n))
			}
			return f.called("compile", p)
		},
		logSize: size("log", &f.log), log: data("log", &f.log),
		binSize: size("cubin", &f.cubin), bin: data("cubin", &f.cubin),
		ptxSize: size("ptx", &f.ptx), ptx: data("ptx", &f.ptx),
	}
}

// An architecture gives machine code, a virtual one PTX. Programs are always destroyed, and each call that fails is
// named with the compiler's message.
func TestCompilerCalls(t *testing.T) {
	options := map[string]string{"cubin": archOption + "sm_90", "ptx": archOption + "compute_80"}
	for _, c := range []struct{ want, fail, code, log, err string }{
		{"cubin", "", "machine code", "a warning", ""},
		{"ptx", "", "text", "a warning", ""},
		{"ptx", "cubin", "text", "a warning", ""},
		{"cubin", "create", "", "", "compile: nvrtcCreateProgram a.cu: NVRTC_ERROR_5"},
		{"cubin", "compile", "", "a warning", "compile: compile a.cu: NVRTC_ERROR_5\na warning"},
		{"cubin", "log size", "", "", "compile: log of a.cu: NVRTC_ERROR_5"},
		{"cubin", "log", "", "", "compile: log of a.cu: NVRTC_ERROR_5"},
		{"cubin", "cubin size", "", "a warning", "compile: code of a.cu: NVRTC_ERROR_5"},
		{"cubin", "cubin", "", "a warning", "compile: code of a.cu: NVRTC_ERROR_5"},
		{"ptx", "ptx", "", "a warning", "compile: code of a.cu: NVRTC_ERROR_5"},
	} {
		f := &fakeNVRTC{cubin: "machine code", ptx: "text", log: "a warning \n\x00", fail: c.fail}
		code, log, err := f.compiler().Compile("a.cu", "int a;", []string{"--first", options[c.want], "--last"})
		if string(code) != c.code || log != c.log || fmt.Sprint(err) != orNil(c.err) {
			t.Errorf("%s, failing %q: %q, %q, %v", c.want, c.fail, code, log, err)
		}
		if c.fail != "create" && f.open != 0 {
			t.Errorf("%s, failing %q: %d programs are left", c.want, c.fail, f.open)
		}
		calls := []string{"a.cu 0 0 0\nint a;"}
		if c.fail != "create" {
			calls = append(calls, "--first", options[c.want], "--last")
		}
		if d := cmp.Diff(calls, f.calls); d != "" {
			t.Errorf("%s, failing %q: calls (-want +got):\n%s", c.want, c.fail, d)
		}
	}
	f := &fakeNVRTC{}
	if v, err := f.compiler().Version(); v != "NVRTC 13.2" || err != nil {
		t.Errorf("version %q, %v", v, err)
	}
	f.fail = "version"
	const want = "compile: nvrtcVersion: NVRTC_ERROR_5"
	if v, err := f.compiler().Version(); v != "" || err == nil || err.Error() != want {
		t.Errorf("version %q, %v", v, err)
	}
}

func orNil(err string) string {
	if err == "" {
		return "<nil>"
	}
	return err
}

// embedded returns the entry and the machine code of a small image of this build, for fake compilers to return.
func embedded(t *testing.T) (*image.Image, string) {
	t.Helper()
	m, err := image.Load()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.Images, func(im image.Image) bool { return im.Name == "smxx-tally-tally" })
	code, err := m.Images[i].Cubin()
	if err != nil {
		t.Fatal(err)
	}
	return &m.Images[i], string(code)
}

// unzipped returns the contents of the files of a folder that are compressed.
func unzipped(t *testing.T, folder string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*.gz"))
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, p := range found {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		list[filepath.Base(p)] = string(text)
	}
	return list
}

// A build compiles each source for its target, and portable sources also to PTX for old drivers. It writes what the
// compiler returned, the manifest and a log. A source that fails keeps its old image.
func TestBuildWritesWhatTheCompilerReturns(t *testing.T) {
	known, code := embedded(t)
	src, out := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(place(t, filepath.Join(src, name)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("sm90/b/instantiations/b.cu", "#include \"b/args.h\"\n")
	write("b/args.h", "struct BArgs { int n; };\n")
	write("sm80/a/instantiations/a.cu", "")
	write("smxx/c/instantiations/c.cu", "")
	place(t, filepath.Join(out, "sm90-gone-gone.cubin.gz"))
	f := &fakeNVRTC{cubin: code, ptx: "// by a compiler\n.version 9.2\n.target sm_80\n\x00", log: "careful\n\x00"}
	var log strings.Builder
	build := func() error {
		log.Reset()
		f.calls = nil
		b := &builder{Config: Config{Source: src, Out: out, Log: &log}, root: os.DirFS(src), nvrtc: f.compiler(),
			version: "NVRTC 13.2"}
		return b.build()
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	const text = "// by a compiler\n.version 8.3\n.target sm_80\n"
	files := map[string]string{"sm80-a-a.ptx.gz": text, "sm90-b-b.cubin.gz": code, "smxx-c-c.cubin.gz": code,
		"smxx-c-c.ptx.gz": text}
	if d := cmp.Diff(files, unzipped(t, out)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	var want image.Manifest
	want.Compiler = "NVRTC 13.2"
	var calls []string
	var lines string
	for _, c := range []struct {
		name, source, target, ptx, facts string
	}{
		{"sm80-a-a", "sm80/a/instantiations/a.cu", "sm_80", "compute_80", ""},
		{"sm90-b-b", "sm90/b/instantiations/b.cu", "sm_90a", "", factSource([]argStruct{
			{name: "BArgs", qualified: "BArgs", fields: []string{"n"}}})},
		{"smxx-c-c", "smxx/c/instantiations/c.cu", "sm_90", "compute_80", ""},
	} {
		list, err := image.Files(os.DirFS(src), c.source)
		if err != nil {
			t.Fatal(err)
		}
		want.Images = append(want.Images, image.Image{Name: c.name, Source: c.source, Target: c.target,
			Options: image.Options(), Files: list, Hash: image.HashOf(c.source, list), Bytes: len(code),
			PTX: c.ptx != "", Kernels: known.Kernels, Structs: known.Structs})
		for _, arch := range []string{c.target, c.ptx} {
			if arch == "" {
				continue
			}
			calls = append(calls, fmt.Sprintf("%s.cu 0 0 0\n#include %q\n%s", c.name, c.source, c.facts),
				"--gpu-architecture="+arch, "--include-path="+src)
			calls = append(calls, image.Options()...)
			lines += fmt.Sprintf("%s for %s:\ncareful\n", c.source, arch)
		}
		for _, k := range known.Kernels {
			lines += fmt.Sprintf("%s %s: %d registers, %d B shared, %d B local, %d B arguments\n", c.name, k.Name,
				k.Registers, k.SharedBytes, k.LocalBytes, k.ParamBytes)
		}
	}
	if d := cmp.Diff(want, readManifest(out)); d != "" {
		t.Errorf("manifest (-want +got):\n%s", d)
	}
	if d := cmp.Diff(calls, f.calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if d := cmp.Diff(lines, log.String()); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}
	if err := build(); err != nil || log.Len() > 0 || len(f.calls) > 0 {
		t.Errorf("nothing changed, but %v, %s%q", err, log.String(), f.calls)
	}

	write("sm90/b/instantiations/b.cu", "int changed;\n")
	f.fail = "compile"
	if err := build(); err == nil || err.Error() != "compile: compile sm90-b-b.cu: NVRTC_ERROR_5\ncareful" {
		t.Errorf("a compiler that fails gave %v", err)
	}
	f.fail = "ptx"
	write("smxx/c/instantiations/c.cu", "int changed;\n")
	if err := build(); err == nil || err.Error() != "compile: code of smxx-c-c.cu: NVRTC_ERROR_5" {
		t.Errorf("PTX that fails gave %v", err)
	}
	f.fail, f.cubin = "", "no cubin"
	write("b/other.h", "")
	write("smxx/c/instantiations/c.cu", "int again;\n")
	err := build()
	if err == nil || !strings.HasPrefix(err.Error(), "compile: smxx/c/instantiations/c.cu: cubin: ") {
		t.Errorf("code that is not a cubin gave %v", err)
	}
	if m := readManifest(out); len(m.Images) != 3 || m.Images[2].Hash != want.Images[2].Hash {
		t.Errorf("the old image was not kept: %+v", m)
	}
	write("smxx/c/instantiations/c.cu", "struct CArgs { int n : 3; };\n")
	if err := build(); err == nil || err.Error() != "smxx/c/instantiations/c.cu: compile: struct CArgs: "+
		`member "int n : 3" is not a plain C member (a type and names)` {
		t.Errorf("a struct that is not plain C gave %v", err)
	}
}

// A library that is not a compiler is refused with the name of what it lacks.
func TestOtherLibrariesAreNoCompilers(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"libnvrtc.so.13", "libnvrtc-builtins.so.13.0"} {
		lib := place(t, filepath.Join(folder, name))
		if _, err := openCompiler(filepath.Join(folder, "libnvrtc.so.13")); err == nil ||
			!strings.HasPrefix(err.Error(), "compile: load "+lib+": ") {
			t.Errorf("%v, want an error about %s", err, lib)
		}
	}
}
