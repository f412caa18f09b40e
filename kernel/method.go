package kernel

import (
	"fmt"
	"slices"
)

// ExpertMethod determines where the weights of an expert are stored and which device computes it.
type ExpertMethod uint8

// The methods. Resident and Fetched experts are computed by the same kernels from the same bytes, so their results are
// bitwise equal. Computed experts are computed by the host's kernels, whose rounding may differ.
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

// ExpertMethods holds the methods of a layer's experts, one for each expert. If both lists are empty, all experts are
// resident.
type ExpertMethods struct {
	Decode  []ExpertMethod // [experts]: methods for decode rows, verified draft rows and rows of drafting passes
	Prefill []ExpertMethod // [experts]: methods for prompt rows
}

// OnHost returns the number of experts that have a copy in host memory.
func (m ExpertMethods) OnHost() int { return len(m.Where(Computed, Fetched)) }

// Of returns the methods for prompt rows, or for all other rows.
func (m ExpertMethods) Of(prompt bool) []ExpertMethod {
	if prompt {
		return m.Prefill
	}
	return m.Decode
}

// Has reports whether an expert has the given method in at least one of the two lists.
func (m ExpertMethods) Has(method ExpertMethod) bool {
	return slices.Contains(m.Decode, method) || slices.Contains(m.Prefill, method)
}

// Where lists the experts that have one of the given methods for decode or prompt rows.
func (m ExpertMethods) Where(methods ...ExpertMethod) []int {
	var out []int
	in := func(list []ExpertMethod, e int) bool { return e < len(list) && slices.Contains(methods, list[e]) }
	for e := range max(len(m.Decode), len(m.Prefill)) {
		if in(m.Decode, e) || in(m.Prefill, e) {
			out = append(out, e)
		}
	}
	return out
}

// Shared lists the experts that are computed for decode rows and fetched for prompt rows.
func (m ExpertMethods) Shared() []int {
	var out []int
	for e := range m.Decode {
		if m.Decode[e] == Computed && m.Prefill[e] == Fetched {
			out = append(out, e)
		}
	}
	return out
}

// Swap exchanges the methods of two experts. in has a copy in host memory and becomes resident; out is resident for all
// rows and gets the methods of in. Swap modifies the lists.
func (m ExpertMethods) Swap(in, out int) error {
	n := len(m.Decode)
	if in < 0 || in >= n || out < 0 || out >= n || m.Decode[in] == Resident || m.Prefill[in] == Resident ||
		m.Decode[out] != Resident || m.Prefill[out] != Resident {
		return fmt.Errorf("%w: expert %d cannot replace expert %d (of %d); want one in host memory to replace a "+
			"resident one", ErrArgument, in, out, n)
	}
	for _, list := range [][]ExpertMethod{m.Decode, m.Prefill} {
		list[in], list[out] = list[out], list[in]
	}
	return nil
}

// Clone returns a copy with its own lists.
func (m ExpertMethods) Clone() ExpertMethods {
	return ExpertMethods{Decode: slices.Clone(m.Decode), Prefill: slices.Clone(m.Prefill)}
}

// check records an error if the number of methods is not n, or if a method is not possible.
func (m ExpertMethods) check(c *checker, n int, host bool) {
	switch {
	case c.err != nil || len(m.Decode) == 0 && len(m.Prefill) == 0:
	case len(m.Decode) != n || len(m.Prefill) != n:
		c.fail("there are %d methods of decode and %d of prefill, want one for each of %d "+
			"experts", len(m.Decode), len(m.Prefill), n)
	case slices.Max(m.Decode) > Fetched || slices.Max(m.Prefill) > Fetched:
		c.fail("methods are %v and %v, want at most %v", slices.Max(m.Decode), slices.Max(m.Prefill), Fetched)
	case m.Has(Computed) && !host:
		c.fail("experts are computed by the host, but there are no workers that compute them")
	}
}
