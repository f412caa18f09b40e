// Package formula implements a model without weights and a device, for simulations of the real engine, scheduler, cache
// and drafts. Results are hashes.
//
// A row stores a mark, a hash of its token and position, at the slot in the real input arrays. Its logits are computed
// from a hash of the marks of all tokens up to it, read through the same arrays, so that a wrong page, slot, position
// or state gives other tokens. The virtual time of a pass is a linear function of its rows and of the keys that they
// attend to. Faults can be injected into operations: errors, panics, hangs, NaN, missing memory, and the loss of the
// device.
package formula
