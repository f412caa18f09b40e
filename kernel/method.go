package kernel

import "fmt"

// ExpertMethod is where the weights of an expert are, and what computes it.
type ExpertMethod uint8

// The methods. Resident and Fetched run the same kernels over the same bytes, so they give the same bits; Computed
// gives those of the host's kernels.
const (
	Resident ExpertMethod = iota // in the memory of the device
	Computed                     // in host memory, computed by the CPU from rows that are copied to it
	Fetched                      // in host memory, copied to the device for each use and computed there
)

var methodNames = [...]string{Resident: "resident", Computed: "computed", Fetched: "fetched"}

func (m ExpertMethod) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method(%d)", uint8(m))
}

// ExpertMethods are the methods of a layer's experts, one for each expert. Without any, all are resident.
type ExpertMethods struct {
	Decode  []ExpertMethod // of rows of decodes, verified drafts and drafting passes
	Prefill []ExpertMethod // of rows of prompts
}

// OnHost is the number of experts that have a copy in host memory.
func (m ExpertMethods) OnHost() int {
	n := 0
	for e := range m.Decode {
		if m.Decode[e] != Resident || m.Prefill[e] != Resident {
			n++
		}
	}
	return n
}
