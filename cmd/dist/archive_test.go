package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpack returns the files of an archive as "mode name text", and their times.
func unpack(t *testing.T, name string, archive []byte) (files []string, times []time.Time) {
	t.Helper()
	add := func(mode os.FileMode, name string, at time.Time, r io.Reader) {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fmt.Sprintf("%v %s %s", mode, name, text))
		times = append(times, at)
	}
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Mode(), f.Name, f.Modified, r)
		}
		return files, times
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, times
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		add(h.FileInfo().Mode(), h.Name, h.ModTime, r)
	}
}

func TestArchivesDependOnNothingElse(t *testing.T) {
	files := []entry{{"sparrow", 0o755, []byte("program")}, {"completions/_sparrow", 0o644, []byte("zsh")}}
	at := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for _, b := range builds() {
		name, first, err := pack(b, "sparrow-1", files, at)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		_, second, err := pack(b, "sparrow-1", files, at.In(time.FixedZone("elsewhere", 3600)).UTC())
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: two archives differ, %v", name, err)
		}
		got, times := unpack(t, name, first)
		want := []string{"-rwxr-xr-x sparrow-1/sparrow program", "-rw-r--r-- sparrow-1/completions/_sparrow zsh"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
		for _, each := range times {
			if !each.Equal(at) {
				t.Errorf("%s: time %v", name, each)
			}
		}
	}
}

// The check of linking detects that this test binary is dynamic if cgo is enabled, and static otherwise.
func TestLinkingIsChecked(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	static := checkLinking(build{name: "static", os: "linux"}, program) == nil
	dynamic := checkLinking(build{name: "dynamic", os: "linux", cuda: true}, program) == nil
	if static == dynamic {
		t.Errorf("static %v, dynamic %v: it is one or the other", static, dynamic)
	}
	if err := checkLinking(build{os: "linux"}, []byte("no program")); err == nil {
		t.Error("what is no program was accepted")
	}
}

func TestOnlyArchivesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sparrow-1-linux-amd64.tar.gz", sumsName, "keep.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := emptyFolder(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "keep.txt" {
		t.Errorf("left %v, %v", left, err)
	}
	if err := makeAll(dir, []string{"beos"}); err == nil || !strings.Contains(err.Error(), "linux-amd64-cuda") {
		t.Errorf("%v", err)
	}
}

// The output of a program that fails is not used, even if there is some; the error contains the command.
func TestCommandsThatFail(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh")
	}
	out, err := command([]string{"WORD=text"}, "sh", "-c", "echo $WORD")
	if err != nil || string(out) != "text\n" {
		t.Errorf("%s, %v", out, err)
	}
	out, err = command(nil, "sh", "-c", "echo text; exit 3")
	if err == nil || out != nil || !strings.Contains(err.Error(), "sh -c echo text; exit 3: exit status 3") {
		t.Errorf("%s, %v", out, err)
	}
}
