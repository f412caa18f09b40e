package machine

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestFields(t *testing.T) {
	const info = "processor\t: 0\nmodel name\t: Some: Chip\nmodel name\t: Other\nMemTotal:       2048 kB\n"
	if got := field([]byte(info), "model name"); got != "Some: Chip" {
		t.Errorf("model name %q", got)
	}
	if got := field([]byte(info), "absent"); got != "" {
		t.Errorf("absent field %q", got)
	}
	for text, want := range map[string]int64{"2048 kB": 2 << 20, "": 0, "x kB": 0, "-1 kB": 0} {
		if got := kibibytes(text); got != want {
			t.Errorf("%q is %d bytes, want %d", text, got, want)
		}
	}
}

func TestLoad(t *testing.T) {
	for text, want := range map[string]float64{"0.52 0.58 0.59 1/467 12345\n": 0.52, "": 0, "x y": 0, "-1 0 0": 0} {
		if got := load([]byte(text)); got != want {
			t.Errorf("%q is a load of %v, want %v", text, got, want)
		}
	}
}

// The description contains what the files of the system report; nothing is assumed for a file that is missing.
func TestFilesOfASystem(t *testing.T) {
	files := map[string]string{"/proc/cpuinfo": "model name\t: Chip\n", "/proc/meminfo": "MemTotal: 2048 kB\n",
		"/proc/loadavg": "1.5 0 0"}
	read := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	want := Machine{CPU: "Chip", Cores: runtime.NumCPU(), Memory: 2 << 20, System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Load: 1.5}
	if got := here(read); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	clear(files)
	want.CPU, want.Memory, want.Load = runtime.GOARCH, 0, 0
	if got := here(read); got != want {
		t.Errorf("without files: %+v, want %+v", got, want)
	}
	for text, bytes := range map[string]int64{"1 kB": 1 << 10, "0 kB": 0, "1125899906842624 kB": 1 << 60,
		"1125899906842625 kB": 0} {
		if got := kibibytes(text); got != bytes {
			t.Errorf("%q is %d bytes, want %d", text, got, bytes)
		}
	}
}

func TestHere(t *testing.T) {
	m := Here()
	if m.CPU == "" || m.Cores != runtime.NumCPU() || m.Go != runtime.Version() {
		t.Errorf("%+v", m)
	}
	if s := (Machine{CPU: "chip", Cores: 2, Memory: 24 << 30, System: "linux/amd64", Go: "go1"}).String(); s !=
		"chip, 2 cores, 24 GiB, linux/amd64, go1, load 0.0" {
		t.Error(s)
	}
	if s := (Machine{CPU: "chip"}).String(); strings.Contains(s, "GiB") {
		t.Errorf("unknown memory is printed: %s", s)
	}
}
