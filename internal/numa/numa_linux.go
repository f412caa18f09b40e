package numa

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func here() (*Machine, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("processors of the process: %w", err)
	}
	nodes, err := Read(os.DirFS("/sys"), set.IsSet)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 1 {
		if err := try(nodes[0]); err != nil {
			return nil, err
		}
	}
	return &Machine{Nodes: nodes, System: linux{}}, nil
}

// try requests memory of a node and releases the request, because containers may forbid it.
func try(n Node) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := (linux{}).Prefer(n.ID); err != nil {
		return fmt.Errorf("%w (a container needs the capability SYS_NICE for it)", err)
	}
	return linux{}.Prefer(-1)
}

type linux struct{}

func (linux) Bind(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}

// Memory policies of the system call set_mempolicy.
const (
	policyDefault = 0
	policyPrefer  = 1
)

func (linux) Prefer(node int) error {
	policy, mask := uintptr(policyPrefer), [2]uint64{}
	if node < 0 {
		policy = policyDefault
	} else if node < 64*len(mask) {
		mask[node/64] = 1 << (node % 64)
	} else {
		return fmt.Errorf("memory node %d is out of range, want a number below %d", node, 64*len(mask))
	}
	// In bounds: the call reads one bit less than the given number from the mask.
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, policy, uintptr(unsafe.Pointer(&mask)), uintptr(64*len(mask)+1))
	if errno != 0 {
		return fmt.Errorf("set_mempolicy for node %d: %w", node, errno)
	}
	return nil
}

func (linux) Thread() int { return unix.Gettid() }
