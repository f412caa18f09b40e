// Package formula is a model and a device that compute by a formula instead of weights, for simulations of everything
// above them: the engine, its scheduler, its cache and its drafts are the real implementations.
//
// A row stores a mark, which depends on its token and position, at the slot that the real input arrays contain. The
// logits after it are a hash of the marks of all tokens before it, read through the same arrays: a wrong page, slot,
// position or state gives other tokens. A pass takes virtual time by a formula of its rows and of the keys that they
// attend to, and any operation may fail, panic, hang, return NaN, find no memory or lose the device.
package formula
