package machine

import (
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
