//go:build race

package sparrow

const raceEnabled = true
