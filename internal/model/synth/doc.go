// Package synth writes random checkpoints of any supported shape, for load tests and benchmarks.
//
// The inputs are a config.json, or the name of a preset, and a seed; the output is a checkpoint folder in the layout of
// the released models, BF16 or FP8 blocks, drafting layer included. Weights are random and scaled so that activations
// have about the same size in all layers and logits have a standard deviation of a few units. The same seed gives the
// same bytes on every machine. Tensors are generated while they are written, so a checkpoint may be larger than memory.
package synth
