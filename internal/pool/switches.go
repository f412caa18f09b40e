//go:build linux || darwin

package pool

import "syscall"

// involuntarySwitches returns how often the system took a processor from a thread of this process to run another
// thread.
func involuntarySwitches() (int64, bool) {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0, false
	}
	return int64(use.Nivcsw), true
}
