package background

import "syscall"

// niceness is the nice value of the thread: it gets about a tenth of the share of others.
const niceness = 10

// lower lowers the priority of the calling thread; on Linux each thread has its own priority. If that is forbidden,
// the thread runs with normal priority.
func lower() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) }
