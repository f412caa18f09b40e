//go:build !race

package jinja

// slowdown is how many times longer code may take under the race detector.
const slowdown = 1
