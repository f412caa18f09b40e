// Package gguf reads GGUF files: metadata and tensors, in one file or in splits.
//
// In flows the path of a file, out flow typed metadata and tensors whose data is a view of the mapped file. The package
// knows the container and the element types, not the models: names of tensors and keys mean nothing to it.
package gguf
