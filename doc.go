// Package sparrow is the library face of the engine: open a model, generate text, close it.
//
// A Request with a prompt, a conversation or token ids flows in; Events with text, parsed replies and, at the end, usage flow out. One
// goroutine owns the step loop: it admits requests, forms a batch, runs it, samples, and hands tokens to each request's Stream. See
// docs/architecture.md for the rooms a request passes.
package sparrow
