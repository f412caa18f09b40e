package weight

import (
	"fmt"
	"slices"
	"strings"
)

// Scheme is the part of a quantised checkpoint's configuration that its tensors do not show. The zero Scheme is empty:
// forms of matrices then follow from the tensors, and ambiguous ones are refused.
type Scheme struct {
	Method     string  // quant_method
	Block      [2]int  // weight_block_size: rows and columns of a block of FP8; zeros if it is not given
	Groups     []Group // groups of integers that are accepted; empty: all are accepted
	Symmetric  bool    // GPTQ: the zero point is the middle of the range of codes, whatever qzeros contains
	PlainZeros bool    // GPTQ: qzeros contains zero points (gptq_v2), otherwise zero points minus one
}

// Group is a size of groups of integers that share a scale.
type Group struct{ Bits, Size int } // Size 0 means the whole row

// String returns the text of the group in messages.
func (g Group) String() string {
	if g.Size == 0 {
		return fmt.Sprintf("int%d with a scale for each row", g.Bits)
	}
	return fmt.Sprintf("int%d in groups of %d", g.Bits, g.Size)
}

// confirm compares the groups that tensors imply with those of the configuration.
func (s *Scheme) confirm(scale *Tensor, bits, size, cols int) error {
	if len(s.Groups) == 0 || slices.Contains(s.Groups, Group{bits, size}) {
		return nil
	}
	if size == cols && slices.Contains(s.Groups, Group{bits, 0}) {
		return nil
	}
	names := make([]string, len(s.Groups))
	for i, g := range s.Groups {
		names[i] = g.String()
	}
	return fmt.Errorf("weight: %s %s in %s implies %v of %d columns, but the configuration's group_size means %s: %w",
		scale.Name, shapeText(scale.Shape), scale.File, Group{bits, size}, cols, strings.Join(names, ", "), ErrScale)
}
