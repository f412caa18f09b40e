// Package machine describes the machine that runs a benchmark, in a few fields that are printed with its results. It
// only reads what the system reports.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
)

// Machine describes one computer in benchmark results.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes,omitempty"`
	System string `json:"system"`
	Go     string `json:"go"`
	// Load is the mean number of runnable programs over the last minute. Benchmark rates are lower if other programs
	// run.
	Load float64 `json:"load,omitempty"`
}

// Here describes this machine. Fields that the system does not report are empty.
func Here() Machine { return here(os.ReadFile) }

func here(read func(path string) ([]byte, error)) Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version()}
	if text, err := read("/proc/cpuinfo"); err == nil {
		if name := field(text, "model name"); name != "" {
			m.CPU = name
		}
	}
	if text, err := read("/proc/meminfo"); err == nil {
		m.Memory = kibibytes(field(text, "MemTotal"))
	}
	if text, err := read("/proc/loadavg"); err == nil {
		m.Load = load(text)
	}
	return m
}

// load returns the first number of a line such as "0.52 0.58 0.59 1/467 12345".
func load(text []byte) float64 {
	first, _, _ := bytes.Cut(text, []byte(" "))
	v, err := strconv.ParseFloat(string(first), 64)
	if err != nil || !(v >= 0) {
		return 0
	}
	return v
}

// field returns the text after the first line that begins with a key and a colon.
func field(text []byte, key string) string {
	for line := range bytes.Lines(text) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(k)) == key {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}

// kibibytes parses a size in /proc/meminfo such as "16 kB", where kB means kibibytes.
func kibibytes(s string) int64 {
	f := bytes.Fields([]byte(s))
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil || n < 0 || n > 1<<50 {
		return 0
	}
	return n << 10
}

func (m Machine) String() string {
	s := fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)
	if m.Memory > 0 {
		s += fmt.Sprintf(", %.0f GiB", float64(m.Memory)/(1<<30))
	}
	return s + fmt.Sprintf(", %s, %s, load %.1f", m.System, m.Go, m.Load)
}
