// Command dist makes the archives that people install: one for each platform, with the binary, completions for shells
// and a systemd unit, and the file SHA256SUMS.
//
//	go run ./cmd/dist [--out FOLDER] [--only NAME,...]
//
// Equal sources and an equal Go release give equal bytes, on any machine and in any folder.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	var out string
	var only []string
	c := &cobra.Command{
		Use:           "dist",
		Short:         "build the release archives",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return makeAll(out, only) },
	}
	c.Flags().StringVar(&out, "out", "dist", "folder for the archives; earlier archives in it are removed")
	c.Flags().StringSliceVar(&only, "only", nil, "builds to make, by name; default all")
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// build describes one kind of binary.
type build struct {
	name     string // name of the build, in the archive's name
	os, arch string
	cuda     bool // whether the program needs glibc, and on GPUs NVIDIA's driver; other builds need nothing
}

func builds() []build {
	return []build{
		{name: "linux-amd64", os: "linux", arch: "amd64"},
		{name: "linux-amd64-cuda", os: "linux", arch: "amd64", cuda: true},
		{name: "linux-arm64", os: "linux", arch: "arm64"},
		{name: "darwin-amd64", os: "darwin", arch: "amd64"},
		{name: "darwin-arm64", os: "darwin", arch: "arm64"},
		{name: "windows-amd64", os: "windows", arch: "amd64"},
	}
}

// binary returns the file name of the program.
func (b build) binary() string {
	if b.os == "windows" {
		return "sparrow.exe"
	}
	return "sparrow"
}

// makeAll builds everything into the folder out.
func makeAll(out string, only []string) error {
	list := builds()
	for _, name := range only {
		if !slices.ContainsFunc(list, func(b build) bool { return b.name == name }) {
			return fmt.Errorf("--only %s: no such build; want one of %s", name, names(list))
		}
	}
	list = slices.DeleteFunc(list, func(b build) bool { return len(only) > 0 && !slices.Contains(only, b.name) })
	s, err := readSource()
	if err != nil {
		return err
	}
	shared, err := s.sharedFiles()
	if err != nil {
		return err
	}
	if err := emptyFolder(out); err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, b := range list {
		program, err := s.compile(b)
		if err != nil {
			return err
		}
		if err := checkLinking(b, program); err != nil {
			return err
		}
		folder := "sparrow-" + s.version + "-" + b.name
		files := append([]entry{{name: b.binary(), mode: 0o755, text: program}}, shared...)
		name, archive, err := pack(b, folder, files, s.time)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), archive, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive), name)
		fmt.Printf("%s  %.1f MiB\n", name, float64(len(archive))/(1<<20))
	}
	return os.WriteFile(filepath.Join(out, sumsName), sums.Bytes(), 0o644)
}

const sumsName = "SHA256SUMS"

func names(list []build) string {
	var b []string
	for _, each := range list {
		b = append(b, each.name)
	}
	return strings.Join(b, ", ")
}

// emptyFolder creates a folder or, if it exists, removes only the archives of an earlier run from it.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == sumsName || strings.HasPrefix(e.Name(), "sparrow-") && e.Type().IsRegular() {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// source is the state of the tree that is built.
type source struct {
	version string // a tag, or the commit; "-changes" where files differ from it
	time    time.Time
}

// readSource reads version and time from git. Every file in an archive gets the time of the commit.
func readSource() (*source, error) {
	seconds, err1 := command(nil, "git", "log", "-1", "--format=%ct")
	version, err2 := command(nil, "git", "describe", "--tags", "--always", "--abbrev=12", "--dirty=-changes")
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("reading the version from git: %w", err)
	}
	t, err := strconv.ParseInt(strings.TrimSpace(string(seconds)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reading the commit's time: %w", err)
	}
	return &source{version: strings.ReplaceAll(strings.TrimSpace(string(version)), "/", "-"),
		time: time.Unix(t, 0).UTC()}, nil
}

// compile builds the program without cgo, so that the result does not depend on a C compiler.
func (s *source) compile(b build) ([]byte, error) {
	dir, err := os.MkdirTemp("", "sparrow-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, b.binary())
	args := []string{"build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -buildid="}
	if !b.cuda {
		args = append(args, "-tags=nocuda")
	}
	env := []string{"CGO_ENABLED=0", "GOOS=" + b.os, "GOARCH=" + b.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS="}
	if _, err := command(env, goCommand(), append(args, "-o", at, "./cmd/sparrow")...); err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	return os.ReadFile(at)
}

// sharedFiles returns the files that all archives contain.
func (s *source) sharedFiles() ([]entry, error) {
	var files []entry
	for from, to := range map[string]string{"LICENSE": "LICENSE", "README.md": "README.md",
		"docs/operating.md": "operating.md", "deploy/sparrow.service": "sparrow.service"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: to, mode: 0o644, text: text})
	}
	for shell, name := range map[string]string{"bash": "sparrow.bash", "zsh": "_sparrow", "fish": "sparrow.fish",
		"powershell": "sparrow.ps1"} {
		text, err := command(nil, goCommand(), "run", "./cmd/sparrow", "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: "completions/" + name, mode: 0o644, text: text})
	}
	slices.SortFunc(files, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

// command runs a program and returns its output.
func command(env []string, name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}
