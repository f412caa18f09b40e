//go:build purego || !amd64

package peak

func loops() []Loop { return nil }

func read(p []byte) { readGo(p) }

func readFour(p []byte, n int) { readGo(p[:4*n]) }
