package cost

import (
	"os"
	"strings"
	"testing"
)

// The documents contain the host's figures of the table.
func TestDocumentsHoldTheRates(t *testing.T) {
	for file, want := range map[string][]string{
		"../../docs/benchmarks/record-cpu.md": {
			"bf16 84 to 100 %, e4m3 72 to 80 % and e2m1 59 to 75 %; for 16 rows 64, 55 and 40 %",
			"empty task took 4.8 microseconds with 16 workers", "16 threads read 130 to 177 GB/s"},
		"../../docs/gpu.md": {"copies of page-locked memory alone run at 54 GB/s"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s does not contain %q", file, part)
			}
		}
	}
}

// A host with few cores reads less than the memory bandwidth, and more rows take longer.
func TestHostRates(t *testing.T) {
	h := H200().CPU
	if one := h.Rate(E2M1, 1); one != 136e3*0.59 {
		t.Errorf("the rate with one row is %v", one)
	}
	if r := h.Rate(E2M1, 16); r != 136e3*0.40 {
		t.Errorf("the rate with 16 rows is %v", r)
	}
	if r, want := h.Rate(E4M3, 64), h.Rate(E4M3, 16)/4; r != want {
		t.Errorf("the rate with 64 rows is %v, want %v", r, want)
	}
	h.Cores = 2
	if r := h.Rate(BF16, 0.5); r != 36e3*0.84 {
		t.Errorf("the rate of two cores is %v", r)
	}
}
