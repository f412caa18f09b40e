package plan

import "fmt"

// The refusals below are found while a plan is carried out, by the packages
// that load models, hold the cache and launch kernels. Their texts live here so
// that every code is worded once.

// ErrDraftHeadMissing refuses drafting with a checkpoint that has no draft head; tensors are those it would need.
func ErrDraftHeadMissing(checkpoint string, layer int, tensors string) *Error {
	return &Error{Code: E15, Asked: fmt.Sprintf("drafting with %s, which has no tensors for draft layer %d (%s)",
		checkpoint, layer, tensors),
		Supported: "drafting with a checkpoint that holds its draft head",
		Try:       "a checkpoint with the draft layer, or no drafting"}
}

// ErrKernelMissing refuses a kernel whose library or build is absent.
func ErrKernelMissing(k Kernel, arch Arch, why string) *Error {
	return &Error{Code: E16, Asked: fmt.Sprintf("kernel %s on %s, which is not available: %s", k, arch, why),
		Supported: "kernels built for this device", Try: "--hw cpu, or a build with this kernel"}
}

// ErrTableRange reports a flattened table that leaves the pool.
func ErrTableRange(slot, slots int) *Error {
	return &Error{Code: E22, Asked: fmt.Sprintf("slot %d of a pool of %d", slot, slots),
		Supported: fmt.Sprintf("slots 0 to %d", slots-1)}
}

// ErrCarryMissing reports a shared layer that was handed no indices.
func ErrCarryMissing(layer, source int) *Error {
	return &Error{Code: E23, Asked: fmt.Sprintf("layer %d, which shares the indices of layer %d, without those indices",
		layer, source),
		Supported: fmt.Sprintf("carrying the selection of layer %d to every layer that shares it", source)}
}

// ErrGraphMismatch reports a replay with another plan than the captured one.
func ErrGraphMismatch(mode Mode, rows int, captured, asked Key) *Error {
	return &Error{Code: E25, Asked: fmt.Sprintf("replay of the %s graph for %d rows with plan %s", mode, rows, asked),
		Supported: fmt.Sprintf("plan %s, with which it was captured", captured), Try: "capturing a graph for this plan"}
}

// ErrLength reports an array whose length contradicts the batch.
func ErrLength(name string, got, want int) *Error {
	return &Error{Code: E26, Asked: fmt.Sprintf("array %s with %d elements", name, got),
		Supported: fmt.Sprintf("%d elements", want)}
}

// ErrImportedLayout reports an imported cache in another layout.
func ErrImportedLayout(got, want Layout, gotPage, wantPage int) *Error {
	return &Error{Code: E27, Asked: fmt.Sprintf("a cache of layout %s with pages of %d tokens", got, gotPage),
		Supported: fmt.Sprintf("layout %s with pages of %d tokens", want, wantPage),
		Try:       "exporting with the same --kv and page size"}
}

// ErrIndexRows reports a selection with more rows than there are queries.
func ErrIndexRows(indexRows, queryRows int) *Error {
	return &Error{Code: E21, Asked: fmt.Sprintf("%d index rows for %d query rows", indexRows, queryRows),
		Supported: "at most one index row per query row"}
}

// ErrKernelStatus reports a kernel that did not succeed.
func ErrKernelStatus(k Kernel, rows int, status string) *Error {
	return &Error{Code: E28, Asked: fmt.Sprintf("kernel %s over %d rows, which ended with %s", k, rows, status),
		Supported: "kernels that end with success"}
}
