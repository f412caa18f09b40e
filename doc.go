// Package sparrow is the library interface of the engine: open a model, generate text, close it.
//
// A Request contains a prompt, a conversation or token ids; its Events contain text, parsed replies and, at the end,
// usage. This package opens checkpoints and converts text to token ids and back; package engine generates the tokens.
// docs/architecture.md lists the packages that handle a request.
//
// The module is used from a clone. With a clone in the folder ../sparrow, in a module of your own:
//
//	go mod edit -replace sparrow=../sparrow && go mod tidy
//
// examples/ask and examples/batch are whole programs.
package sparrow
