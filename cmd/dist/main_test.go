package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// program returns a Linux binary without code that is linked with the given libraries; interpreted reports whether a
// dynamic linker loads it.
func program(t *testing.T, interpreted bool, libraries ...string) []byte {
	t.Helper()
	names := "\x00.dynstr\x00.dynamic\x00"
	var dynamic []elf.Dyn64
	for _, lib := range libraries {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names += lib + "\x00"
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	const head, prog, section = 64, 56, 64
	h := elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
		byte(elf.EV_CURRENT)}, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: head,
		Ehsize: head, Phentsize: prog, Phnum: 1, Shentsize: section, Shnum: 3, Shstrndx: 1, Shoff: head + prog}
	p := elf.Prog64{Type: uint32(elf.PT_LOAD)}
	if interpreted {
		p.Type = uint32(elf.PT_INTERP)
	}
	at := uint64(head + prog + 3*section)
	sections := []elf.Section64{{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(len(names))},
		{Name: 9, Type: uint32(elf.SHT_DYNAMIC), Off: at + uint64(len(names)), Size: uint64(16 * len(dynamic)), Link: 1,
			Entsize: 16}}
	var b bytes.Buffer
	for _, part := range []any{h, p, sections, []byte(names), dynamic} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// A build without CUDA is static. A build with CUDA is dynamic and needs only libraries of glibc.
func TestLibrariesOfBuilds(t *testing.T) {
	for _, c := range []struct {
		cuda, interpreted bool
		libraries         []string
		want              string
	}{
		{false, false, nil, "<nil>"},
		{true, true, []string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}, "<nil>"},
		{true, true, nil, "<nil>"},
		{false, true, nil, "b: dynamic linking is true, want false"},
		{true, false, nil, "b: dynamic linking is false, want true"},
		{false, true, []string{"libc.so.6"}, "b needs libc.so.6"},
		{true, true, []string{"libc.so.6", "libstdc++.so.6"}, "b needs libstdc++.so.6"},
	} {
		b := build{name: "b", os: "linux", cuda: c.cuda}
		if err := checkLinking(b, program(t, c.interpreted, c.libraries...)); fmt.Sprint(err) != c.want {
			t.Errorf("cuda %v, interpreted %v, %v: %v, want %s", c.cuda, c.interpreted, c.libraries, err, c.want)
		}
	}
	if err := checkLinking(build{name: "b", os: "darwin"}, []byte("another format")); err != nil {
		t.Error(err)
	}
}

// fakeTools makes a source tree the working directory, with a git and a Go command that only write their arguments to
// the file calls. The Go command builds static, or for CUDA dynamic, binaries without code.
func fakeTools(t *testing.T) (calls string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	root, tools := t.TempDir(), t.TempDir()
	calls = filepath.Join(tools, "calls")
	script := func(name, text string) {
		text = "#!/bin/sh\nset -e\necho \"" + name + " $*\" >> " + calls + "\n" + text
		if err := os.WriteFile(filepath.Join(tools, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("git", `case "$1" in log) echo 1700000000 ;; describe) echo release/v1.2 ;; esac`)
	script("go", `case "$1" in
run) echo "completion of $4" ;;
build)
	for v in GOOS GOARCH CGO_ENABLED GOAMD64 GOARM64 GOFLAGS; do eval "echo $v=\$$v >> `+calls+`"; done
	from=dynamic; for a; do [ "$a" != -tags=nocuda ] || from=static; [ "$last" != -o ] || to=$a; last=$a; done
	cp `+tools+`/$from "$to" ;;
esac`)
	for name, text := range map[string][]byte{"static": program(t, false), "dynamic": program(t, true, "libc.so.6")} {
		if err := os.WriteFile(filepath.Join(tools, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"LICENSE", "README.md", "docs/operating.md", "deploy/sparrow.service"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	t.Setenv("GO", filepath.Join(tools, "go"))
	t.Setenv("PATH", tools+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("GOFLAGS", "-mod=mod")
	return calls
}

// A release has an archive of every build, each with the program, the documents and the completions of four shells, and
// their sums. All files have the time of the commit.
func TestARelease(t *testing.T) {
	calls := fakeTools(t)
	out := filepath.Join(t.TempDir(), "new", "dist")
	if err := makeAll(out, nil); err != nil {
		t.Fatal(err)
	}
	var sums, builds strings.Builder
	for _, b := range []struct{ name, os, arch, file string }{
		{"linux-amd64.tar.gz", "linux", "amd64", "sparrow"},
		{"linux-amd64-cuda.tar.gz", "linux", "amd64", "sparrow"},
		{"linux-arm64.tar.gz", "linux", "arm64", "sparrow"},
		{"darwin-amd64.tar.gz", "darwin", "amd64", "sparrow"},
		{"darwin-arm64.tar.gz", "darwin", "arm64", "sparrow"},
		{"windows-amd64.zip", "windows", "amd64", "sparrow.exe"},
	} {
		name := "sparrow-release-v1.2-" + b.name
		archive, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive), name)
		got, times := unpack(t, name, archive)
		cuda := strings.Contains(b.name, "cuda")
		binary, tag := program(t, false), " -tags=nocuda"
		if cuda {
			binary, tag = program(t, true, "libc.so.6"), ""
		}
		folder := strings.TrimSuffix(strings.TrimSuffix(name, ".zip"), ".tar.gz")
		want := []string{"-rwxr-xr-x " + folder + "/" + b.file + " " + string(binary)}
		for _, f := range [][2]string{{"LICENSE", "text of LICENSE"}, {"README.md", "text of README.md"},
			{"completions/_sparrow", "completion of zsh\n"}, {"completions/sparrow.bash", "completion of bash\n"},
			{"completions/sparrow.fish", "completion of fish\n"},
			{"completions/sparrow.ps1", "completion of powershell\n"},
			{"operating.md", "text of docs/operating.md"}, {"sparrow.service", "text of deploy/sparrow.service"}} {
			want = append(want, "-rw-r--r-- "+folder+"/"+f[0]+" "+f[1])
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		for _, at := range times {
			if !at.Equal(time.Unix(1700000000, 0)) {
				t.Errorf("%s: time %v", name, at)
			}
		}
		fmt.Fprintf(&builds, "go build -trimpath -buildvcs=true -ldflags=-s -w -buildid=%s -o %s ./cmd/sparrow\n"+
			"GOOS=%s\nGOARCH=%s\nCGO_ENABLED=0\nGOAMD64=v1\nGOARM64=v8.0\nGOFLAGS=\n", tag, b.file, b.os, b.arch)
	}
	if got, err := os.ReadFile(filepath.Join(out, "SHA256SUMS")); err != nil || string(got) != sums.String() {
		t.Errorf("sums, %v:\n%s\nwant\n%s", err, got, sums.String())
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	var run, rest []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		for i, w := range words {
			if filepath.IsAbs(w) && words[i-1] == "-o" {
				words[i] = filepath.Base(w)
				if _, err := os.Stat(w); err == nil {
					t.Errorf("%s was not removed", w)
				}
			}
		}
		line = strings.Join(words, " ") + "\n"
		if strings.HasPrefix(line, "go run") {
			run = append(run, line)
		} else {
			rest = append(rest, line)
		}
	}
	slices.Sort(run)
	const completion = "go run ./cmd/sparrow completion "
	if d := cmp.Diff([]string{completion + "bash\n", completion + "fish\n", completion + "powershell\n",
		completion + "zsh\n"}, run); d != "" {
		t.Errorf("completions (-want +got):\n%s", d)
	}
	want := "git log -1 --format=%ct\ngit describe --tags --always --abbrev=12 --dirty=-changes\n" + builds.String()
	if d := cmp.Diff(want, strings.Join(rest, "")); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// Only the builds that were asked for are made. The first error ends the release.
func TestPartsOfARelease(t *testing.T) {
	fakeTools(t)
	out := t.TempDir()
	if err := makeAll(out, []string{"linux-arm64", "windows-amd64"}); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"SHA256SUMS", "sparrow-release-v1.2-linux-arm64.tar.gz", "sparrow-release-v1.2-windows-amd64.zip"}
	for i := range want {
		want[i] = filepath.Join(out, want[i])
	}
	if !slices.Equal(made, want) {
		t.Errorf("made %q, want %q", made, want)
	}
	refused := func(want, tool, script string) {
		t.Helper()
		fakeTools(t)
		path := filepath.Join(filepath.Dir(os.Getenv("GO")), tool)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := makeAll(t.TempDir(), []string{"linux-amd64"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused("reading the version from git: git log", "git", "exit 1")
	refused("reading the version from git: git describe", "git", `[ "$1" = log ] && echo 17`)
	refused("reading the commit's time", "git", "echo yesterday")
	refused("completion", "go", "exit 2")
	refused("linux-amd64: ", "go", `[ "$1" = run ]`)
	refused("no such file", "go", "exit 0")
	refused("linux-amd64: bad magic", "go",
		`for a; do [ "$last" != -o ] || echo "no program at all" > "$a"; last=$a; done`)
	fakeTools(t)
	if err := os.Remove("deploy/sparrow.service"); err != nil {
		t.Fatal(err)
	}
	if err := makeAll(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "sparrow.service") {
		t.Errorf("without a file of every archive: %v", err)
	}
}
