// Package gguf reads GGUF files: metadata and tensors, in one file or in splits.
//
// It returns typed metadata, and tensors whose data is a slice of the mapped file. It does not interpret the names of
// tensors and keys.
package gguf
