// Package weight reads and writes checkpoints in the safetensors format.
//
// The input is a folder, a file or embedded bytes. The output is tensors by name, which are slices of the mapped file,
// and matrices: weights with their block scales. Opening a checkpoint checks the headers and reads no tensor data.
//
// A safetensors file is
//
//	8 bytes   header length n, little endian
//	n bytes   JSON {"name": {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__": {string: string}}, then
//	          spaces
//	rest      tensor data, offsets counted from here
//
// The tensors must cover the data exactly once, without gaps, as the format requires. A file that violates this is
// refused with a list of all problems.
//
// The package does not depend on models: the caller defines the names and meaning of tensors. The format of a quantised
// matrix is determined from the dtypes of its tensors.
package weight
