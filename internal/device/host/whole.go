package host

import (
	"fmt"

	"sparrow/kernel"
)

// CheckLatent returns an error unless every key of attention over whole sequences is in its page table and its pool.
func CheckLatent(a *kernel.LatentArgs) error {
	for r := range a.Q.Rows {
		n, at := int(RowI32(a.Lens, r)[0]), RowI32(a.TableRow, r)[0]
		if n <= 0 {
			continue
		}
		pages := (n + a.Pool.PageTokens - 1) / a.Pool.PageTokens
		if at < 0 || int(at) >= a.Table.Rows || pages > a.Table.Cols {
			return fmt.Errorf("%w: latent attend: row %d attends to %d keys through row %d of the page table, which "+
				"has %d x %d pages",
				kernel.ErrArgument, r, n, at, a.Table.Rows, a.Table.Cols)
		}
		for i, p := range RowI32(a.Table, int(at))[:pages] {
			if p < 0 || int(p) >= a.Pool.Pages() {
				return fmt.Errorf("%w: latent attend: entry %d of row %d is page %d, outside the pool of %d pages",
					kernel.ErrArgument,
					i, r, p, a.Pool.Pages())
			}
		}
	}
	return nil
}
