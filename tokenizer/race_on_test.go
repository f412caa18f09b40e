//go:build race

package tokenizer

// slowdown is the factor by which the race detector may slow down tests; times in tests are for plain builds.
const slowdown = 20
