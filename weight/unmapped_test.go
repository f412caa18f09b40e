//go:build !(linux || darwin) || nommap

package weight

const mapsFiles = false
