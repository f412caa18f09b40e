// Package sparrow is the library face of the engine: open a model, generate text, close it.
//
// A Request with a prompt, a conversation or token ids flows in; Events with text, parsed replies and, at the end,
// usage flow out. This package opens checkpoints and turns text into token ids and back; package engine generates the
// tokens. See docs/architecture.md for the packages a request passes.
//
// The module is used from a clone. With one in the folder ../sparrow, in a module of your own:
//
//	go mod edit -replace sparrow=../sparrow && go mod tidy
//
// examples/ask and examples/batch are whole programs.
package sparrow
