package main

import (
	"strings"
	"testing"

	"sparrow/kernel"
)

// --pretend accepts the hardware profiles of explain, and limits that the user gives replace those of the profile.
func TestLimitFlags(t *testing.T) {
	rtx4090 := kernel.Limits{Profile: "rtx4090", Arch: "sm89", Memory: 24e9, Shared: 101376, SMs: 128, Bus: 25e9}
	smaller := rtx4090
	smaller.Memory, smaller.SMs, smaller.Bus = 20<<30, 64, 12_500_000_000
	for _, c := range []struct {
		f    limitFlags
		want kernel.Limits
		err  string
	}{
		{limitFlags{}, kernel.Limits{}, ""},
		{limitFlags{pretend: "rtx4090"}, rtx4090, ""},
		{limitFlags{pretend: "rtx4090", limitMemory: "20G", limitSMs: 64, limitBus: "12.5g"}, smaller, ""},
		{limitFlags{pretend: "dgxspark"},
			kernel.Limits{Profile: "dgxspark", Arch: "sm121", Memory: 128e9, Shared: 101376, SMs: 48}, ""},
		{limitFlags{limitShared: "99K"}, kernel.Limits{Shared: 101376}, ""},
		{limitFlags{pretend: "rtx9999"}, kernel.Limits{}, `--pretend rtx9999`},
		{limitFlags{pretend: "mi355x"}, kernel.Limits{}, "do not run on NVIDIA GPUs"},
		{limitFlags{pretend: "cpu"}, kernel.Limits{}, "kernels for cpu"},
		{limitFlags{limitMemory: "22"}, kernel.Limits{}, `--limit-memory: "22" is less than`},
		{limitFlags{limitShared: "16K"}, kernel.Limits{}, `--limit-smem: "16K" is less than 48.0 KiB`},
		{limitFlags{limitBus: "25"}, kernel.Limits{}, "--limit-bus 25: want a rate in GB/s"},
		{limitFlags{limitSMs: -3}, kernel.Limits{}, "--limit-sms -3"},
	} {
		got, err := c.f.limits()
		if c.err == "" && (err != nil || got != c.want) {
			t.Errorf("%+v: %+v, %v; want %+v", c.f, got, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%+v: %v, want %q", c.f, err, c.err)
		}
	}
}

// Limits describe one GPU: they are refused with kernels for a CPU and with several ranks.
func TestLimitsAreOfOneGPU(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"which apply to GPUs", []string{"run", "--kernels", "cpu", "--pretend", "rtx4090", "hello"}},
		{"which apply to GPUs", []string{"bench", "model", "--kernels", "ref", "--limit-memory", "8G"}},
		{"only a single GPU can be limited", []string{"run", "--ranks", "2", "--pretend", "rtx4090", "hello"}},
		{"omit them or --ranks", []string{"bench", "model", "--ranks", "2", "--limit-sms", "64"}},
	} {
		_, _, err := drive("", c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
