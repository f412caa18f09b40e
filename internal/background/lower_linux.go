package background

import "syscall"

// niceness is the nice value of the thread: it gets about a tenth of the share of others.
const niceness = 10

// lower lowers the priority of the calling thread; on Linux a priority is that of a thread. Where that is forbidden the
// thread runs like others.
func lower() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) }
