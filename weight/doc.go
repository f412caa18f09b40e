// Package weight reads and writes checkpoints in the safetensors format.
//
// The input is a folder, a file or embedded bytes; the output is tensors by name, each a zero-copy view of its file,
// and matrices: a weight together with its block scales. Opening checks the whole header and reads no tensor data.
//
// A safetensors file is
//
//	8 bytes   header length n, little endian
//	n bytes   JSON {"name": {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__": {string: string}}, then
//	          spaces
//	rest      tensor data, offsets counted from here
//
// and its tensors must tile the data exactly: no gap, no overlap, nothing after the last one. That is a rule of the
// format; a file that breaks it is refused with a list of all problems.
//
// The package is independent of models: the caller defines which tensors exist and what they mean. A quantised matrix
// is recognised by the dtypes of its tensors alone.
package weight
