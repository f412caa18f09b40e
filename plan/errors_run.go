package plan

import "fmt"

// The errors below are returned by packages that load models, hold the cache and launch kernels. They are defined here,
// next to those of package plan, so that the text of each code exists once.

// ErrDraftHeadMissing is the error of drafting with a checkpoint without a draft head; tensors names the missing
// tensors.
func ErrDraftHeadMissing(checkpoint string, layer int, tensors string) *Error {
	return &Error{Code: E15, Asked: fmt.Sprintf("drafting with %s, which has no tensors for draft layer %d (%s)",
		checkpoint, layer, tensors),
		Supported: "drafting with a checkpoint that holds its draft head",
		Try:       "a checkpoint with the draft layer, or no drafting (--draft off)"}
}

// ErrCarryMissing reports a layer that shares the indices of an earlier layer but did not receive them.
func ErrCarryMissing(layer, source int) *Error {
	return &Error{Code: E23, Asked: fmt.Sprintf("layer %d, which shares the indices of layer %d, without those indices",
		layer, source),
		Supported: fmt.Sprintf("passing the indices of layer %d to every layer that shares them", source)}
}

// ErrLength reports an array whose length contradicts the batch.
func ErrLength(name string, got, want int) *Error {
	return &Error{Code: E26, Asked: fmt.Sprintf("array %s with %d elements", name, got),
		Supported: fmt.Sprintf("%d elements", want)}
}

// ErrTableRange reports a page table with a page outside the cache.
func ErrTableRange(request int, page int32, pages int) *Error {
	return &Error{Code: E22, Asked: fmt.Sprintf("request %d with page %d in a cache of %d pages", request, page, pages),
		Supported: fmt.Sprintf("pages 0 to %d", pages-1)}
}

// ErrLayout reports that a plan and its cache have different layouts, whose names are planned and cached.
func ErrLayout(planned, cached string) *Error {
	return &Error{Code: E27, Asked: fmt.Sprintf("a plan for %s over a cache of %s", planned, cached),
		Supported: fmt.Sprintf("a cache of %s", planned)}
}

// ErrKernelStatus reports a pass that did not succeed, with the kernel's error.
func ErrKernelStatus(mode Mode, rows int) *Error {
	return &Error{Code: E28, Asked: fmt.Sprintf("a pass of mode %s over %d rows", mode, rows)}
}
