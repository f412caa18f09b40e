// Package formula is a model on a device that compute by a formula instead of weights, for simulations of everything
// above them: the engine, its scheduler, its cache and its drafts are the real ones.
//
// A row stores a mark of its token and position where the real input arrays say, and the logits after it are a hash of
// the marks of all tokens before it, read back through the same arrays: a wrong page, slot, position or state gives
// other tokens. A pass takes the virtual time of a formula of its rows and of the keys they see, and any operation may
// fail, panic, hang, give NaN, find no memory or lose the device.
package formula
