//go:build !race

package tokenizer

const slowdown = 1
