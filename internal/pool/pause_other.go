//go:build !amd64 || purego

package pool

func pause() {}
