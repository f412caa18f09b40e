package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sparrow"
)

// workersText says how many CPU threads compute and what their number comes from; nothing where a GPU computes.
func (d *deviceFlags) workersText(i sparrow.Info) string {
	switch {
	case i.Memory.Device > 0:
		return ""
	case strings.HasPrefix(i.Kernels, "ref"):
		return "1: reference kernels run on one thread"
	}
	n := d.workers
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	why := "one for each core of this process"
	switch {
	case d.workers > 0 && !d.spared:
		why = "--workers"
	case processorsGiven():
		why = "GOMAXPROCS in the environment"
	case n < runtime.NumCPU():
		why = fmt.Sprintf("the CPU limit of the control group; the process may run on %d cores", runtime.NumCPU())
	}
	if d.workers == 0 || d.spared {
		why += " (--workers gives another number)"
	}
	if ranks := i.Config.Model.Ranks; ranks > 1 {
		return fmt.Sprintf("%d, divided among %d ranks: %s", max(n, ranks), ranks, why)
	}
	return fmt.Sprintf("%d: %s", n, why)
}

// processorsGiven reports whether the environment sets the number of Go's processors. Go ignores values that are no
// positive number.
func processorsGiven() bool {
	n, err := strconv.Atoi(os.Getenv("GOMAXPROCS"))
	return err == nil && n > 0
}

// warnOfWorkers warns of more threads than cores that the process may use.
func (d *deviceFlags) warnOfWorkers(cmd *cobra.Command) {
	n := d.processors
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	warnOfThreads(cmd, "--workers", d.workers, n)
}

// warnOfThreads warns of more threads than the process has cores: those of its affinity, at most as many as processors,
// which a limit of its control group or GOMAXPROCS may have lowered.
func warnOfThreads(cmd *cobra.Command, flag string, threads, processors int) {
	n := min(processors, runtime.NumCPU())
	if threads <= n {
		return
	}
	cores := "1 core"
	if n > 1 {
		cores = fmt.Sprintf("%d cores", n)
	}
	warnings(cmd)(fmt.Sprintf("%s %d: this process may use %s, and threads that share one wait for each other", flag,
		threads, cores))
}
