package host

import "sparrow/kernel"

// Copy copies a tensor row by row.
func (Memory) Copy(a kernel.CopyArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	for r := range a.X.Rows {
		copy(Bytes(a.Out.Slice(r, r+1)), Bytes(a.X.Slice(r, r+1)))
	}
	return nil
}
