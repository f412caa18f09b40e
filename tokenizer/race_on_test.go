//go:build race

package tokenizer

// slowdown is the factor by which time limits of tests grow under the race detector.
const slowdown = 20
