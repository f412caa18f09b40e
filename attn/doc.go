// Package attn carries out a Plan: project, store, index, select, attend, combine.
//
// A Plan, the lengths of its batch and the page tables flow in at the start of a step; then, layer by layer, normalised hidden rows flow in
// and attention outputs are added to the residual rows. Which kernel reads which layout through which transform is read from the Plan and
// never decided here. Selections are kept as positions, because layers that share a selection and records of it outlive the places
// a batch gives to rows; they are turned into slots or gathered rows just before attention.
package attn
