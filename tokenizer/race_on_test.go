//go:build race

package tokenizer

// slowdown is how much the race detector may cost; times in tests are for plain
// builds.
const slowdown = 20
