package plan

import (
	"fmt"
	"strings"
)

// Code is the code of an error of dispatch section 18. It is itself an error, so that errors.Is(err, plan.E03) tests
// for one kind of error.
type Code string

// Errors at start: of Resolve, and of opening a model.
const (
	E01 Code = "E01" // no kernel of the catalogue runs on this architecture
	E02 Code = "E02" // the kernel is not valid for this phase or architecture
	E03 Code = "E03" // the kernel cannot read this KV type
	E04 Code = "E04" // prefill and decode kernels need different layouts
	E05 Code = "E05" // the KV type is not supported
	E06 Code = "E06" // the page size conflicts with the kernels
	E07 Code = "E07" // the kernel does not support this index_topk
	E08 Code = "E08" // too many heads per rank, heads that cannot be padded, or experts that do not divide
	E09 Code = "E09" // this selection kernel cannot be fused with the transform
	E10 Code = "E10" // context parallelism: strategy, size or role
	E11 Code = "E11" // tree drafts
	E12 Code = "E12" // a shared layer is separated from the layer it shares with
	E13 Code = "E13" // deterministic mode with an unstable choice
	E14 Code = "E14" // KV offload is combined with a setting that it excludes
	E15 Code = "E15" // the draft head is missing from the checkpoint
	E16 Code = "E16" // the kernel library or its build for this architecture is missing
	E17 Code = "E17" // transient memory does not fit
)

// Errors of a batch: of Build, and of running a plan.
const (
	E20 Code = "E20" // unknown mode
	E22 Code = "E22" // a page table is too short or names a page outside the cache
	E23 Code = "E23" // a shared layer was reached without carried indices
	E24 Code = "E24" // row limit exceeded and slicing is off
	E25 Code = "E25" // batches of this mode cannot be captured in a graph of the requested kind
	E26 Code = "E26" // lengths contradict each other
	E27 Code = "E27" // the cache has a layout other than the plan's
	E28 Code = "E28" // a kernel of the pass reported a failure
)

var codeTitles = map[Code]string{
	E01: "no kernel for this architecture",
	E02: "kernel not valid for this phase or architecture",
	E03: "kernel and kv type cannot be combined",
	E04: "prefill and decode need different cache layouts",
	E05: "kv type not supported",
	E06: "page size conflict",
	E07: "index_topk not supported by the kernel",
	E08: "heads or experts per rank do not fit",
	E09: "selection kernel cannot be fused",
	E10: "context parallelism not possible",
	E11: "tree drafts not supported",
	E12: "shared layer separated from its source",
	E13: "deterministic mode not possible",
	E14: "kv offload not possible",
	E15: "draft head missing",
	E16: "kernel build missing",
	E17: "not enough transient memory",
	E20: "unknown mode",
	E22: "page table out of range",
	E23: "shared layer without carried indices",
	E24: "row limit exceeded",
	E25: "graph not possible for this batch",
	E26: "lengths inconsistent",
	E27: "cache layout differs",
	E28: "kernel failed",
}

// Title returns the code's meaning in a few words.
func (c Code) Title() string { return codeTitles[c] }

func (c Code) Error() string { return string(c) + " " + c.Title() }

// Error describes a request that is not supported: the requested value, the supported values, and a suggestion.
type Error struct {
	Code      Code   `json:"code"`
	Asked     string `json:"asked"`
	Supported string `json:"supported,omitempty"`
	Try       string `json:"try,omitempty"` // supported flags that are nearest to the requested flags
	// Tried lists the candidates that were rejected before this error.
	Tried []Rejection `json:"tried,omitempty"`
}

func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plan: %s: %s; requested: %s", string(e.Code), e.Code.Title(), e.Asked)
	if e.Supported != "" {
		fmt.Fprintf(&s, "; supported: %s", e.Supported)
	}
	if e.Try != "" {
		fmt.Fprintf(&s, "; try %s", e.Try)
	}
	return s.String()
}

// Is reports whether target is the code of e, for errors.Is(err, E03).
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}
