package main

import (
	"encoding/json"
	"strings"
	"testing"

	"sparrow/internal/bench/cuda"
	"sparrow/kernel/cuda"
)

func TestBenchKernelsFailsWithAReason(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no case contains", []string{"--kernels", "cuda", "--only", "nothing of this name"}},
		{"no case contains", []string{"--device", "cuda", "--only", "nothing of this name"}},
		{`--device "tpu"`, []string{"--device", "tpu"}},
		{"give one of them", []string{"--device", "cuda", "--kernels", "cpu"}},
		{"separate runs", []string{"--kernels", "cuda,cpu"}},
		{"--threads has no effect with --kernels cuda", []string{"--kernels", "cuda", "--threads", "1"}},
		{"--pause has no effect with --kernels cpu", []string{"--pause", "1s"}},
		{"bench kernels: --replays -1: want 0 or more", []string{"--kernels", "cuda", "--replays", "-1"}},
		{"bench kernels: --pause -1s: want a positive time", []string{"--kernels", "cuda", "--pause", "-1s"}},
	} {
		if _, _, err := drive("", append([]string{"bench", "kernels"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want it to say %q", c.args, err, c.want)
		}
	}
}

// On a machine with a GPU the command times one small case; elsewhere it prints one line that states why it cannot run.
func TestBenchKernelsOnCUDA(t *testing.T) {
	out, _, err := drive("", "bench", "kernels", "--kernels", "cuda", "--only", "topk 512", "--json")
	if why := cuda.Available(); why != nil {
		if err == nil || out != "" || !strings.Contains(err.Error(), why.Error()) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("without a GPU: %q, %v", out, err)
		}
		return
	}
	var r bench.Report
	if e := json.Unmarshal([]byte(out), &r); e != nil || err != nil || len(r.Results) != 1 || !r.Results[0].Checked {
		t.Errorf("%v, %v, %s", err, e, out)
	}
}
