package background

import "syscall"

// niceness is added to the nice value of the thread, which then gets about a tenth of the processor time of other
// threads. lowest is the largest nice value of Linux.
const niceness, lowest = 10, 19

// lower lowers the priority of the calling thread; on Linux each thread has its own priority. If that is forbidden,
// the thread keeps its priority.
func lower() {
	if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil { // 20 minus the nice value
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, min(20-p+niceness, lowest))
	}
}
