//go:build !linux

package numa

func here() (*Machine, error) { return nil, ErrUnsupported }
