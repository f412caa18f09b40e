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

// workersText returns the number of CPU threads and what has set it; it is empty if the model runs on a GPU.
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
	switch ranks := i.Config.Model.Ranks; {
	case ranks > max(n, 1):
		return fmt.Sprintf("%d, one for each rank, where %d would be too few: %s", ranks, n, why)
	case ranks > 1:
		return fmt.Sprintf("%d, divided among %d ranks: %s", n, ranks, why)
	}
	return fmt.Sprintf("%d: %s", n, why)
}

// processorsGiven reports whether GOMAXPROCS in the environment is a positive number. Go ignores other values.
func processorsGiven() bool {
	n, err := strconv.Atoi(os.Getenv("GOMAXPROCS"))
	return err == nil && n > 0
}

// warnOfWorkers warns if a flag or the environment sets more threads than cores that the process may use.
func (d *deviceFlags) warnOfWorkers(cmd *cobra.Command) {
	what, n := "--workers", d.workers
	if n == 0 {
		what, n = "GOMAXPROCS", runtime.GOMAXPROCS(0)
	}
	most := usableCores()
	if d.processors > 0 { // spareProcessor has increased GOMAXPROCS by one
		most = min(d.processors, runtime.NumCPU())
	}
	warnOfThreads(cmd, what, n, most)
}

// warnOfThreads warns if there are more threads than cores.
func warnOfThreads(cmd *cobra.Command, what string, threads, cores int) {
	if threads <= cores {
		return
	}
	text := "1 core"
	if cores > 1 {
		text = fmt.Sprintf("%d cores", cores)
	}
	warnings(cmd)(fmt.Sprintf("%s %d: this process may use %s, and threads that share one wait for each other; "+
		"omit it, or give at most %d", what, threads, text, cores))
}

// usableCores returns the number of cores that the process may use: the cores of its affinity mask, limited by the CPU
// limit of its cgroup and by GOMAXPROCS.
func usableCores() int {
	n := runtime.GOMAXPROCS(0)
	if processorsGiven() {
		runtime.SetDefaultGOMAXPROCS() // this call alone computes the default without the environment variable
		n = min(n, runtime.GOMAXPROCS(n))
	}
	return min(n, runtime.NumCPU())
}
