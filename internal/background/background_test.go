package background

import (
	"runtime"
	"syscall"
	"testing"
)

func TestRunWaitsAndPassesPanics(t *testing.T) {
	ran := false
	Run(func() { ran = true })
	if !ran {
		t.Error("the function did not run before Run returned")
	}
	defer func() {
		if v := recover(); v != "no" {
			t.Errorf("recovered %v", v)
		}
	}()
	Run(func() { panic("no") })
}

// Run executes the work at a lower priority than other threads and does not change their priority.
func TestRunLowersItsOwnThread(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("priorities of threads are Linux's")
	}
	priority := func() int {
		n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n // the kernel reports 20 minus the niceness
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, inside := priority(), 0
	if before == 1 {
		t.Skip("the tests run at the lowest priority")
	}
	Run(func() { inside = priority() })
	if inside >= before || priority() != before {
		t.Errorf("priority %d inside, %d before and %d after", inside, before, priority())
	}
}
