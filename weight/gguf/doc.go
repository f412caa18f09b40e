// Package gguf reads GGUF files: metadata and tensors, in one file or in splits.
//
// The input is the path of a file, the output is typed metadata and tensors whose data is a view of the mapped file.
// The package handles the container and the element types, not the models: it does not interpret names of tensors and
// keys.
package gguf
