// Package synth writes random checkpoints of any shape the engine can run, for load tests and benchmarks.
//
// The inputs are a config.json, or the name of a preset, and a seed; the output is a checkpoint folder in the layout of
// the released models, BF16 or FP8 blocks, drafting layer included. Weights are scaled so that activations keep their
// size from layer to layer and logits spread over a few units; they are untrained. The same seed gives the same bytes
// on every machine. Tensors are streamed: a checkpoint may be far larger than memory.
package synth
