package weight

import (
	"fmt"
	"slices"
	"strings"
)

// Scheme holds the settings of a checkpoint's quantisation that cannot be determined from its tensors. With the zero
// Scheme, ambiguous formats are an error.
type Scheme struct {
	Method     string  // quant_method
	Block      [2]int  // weight_block_size: rows and columns of an FP8 block; zeros if it is not set
	Groups     []Group // accepted sizes of integer groups; empty means all
	Symmetric  bool    // for GPTQ: zero points are the middle of the range of codes, and qzeros is ignored
	PlainZeros bool    // for GPTQ: qzeros contains zero points (gptq_v2), otherwise zero points minus one
}

// Group is the number of bits of integer codes and the number of columns that share a scale.
type Group struct{ Bits, Size int } // 0 means the whole row

// String describes the group, for messages.
func (g Group) String() string {
	if g.Size == 0 {
		return fmt.Sprintf("int%d with a scale for each row", g.Bits)
	}
	return fmt.Sprintf("int%d in groups of %d", g.Bits, g.Size)
}

// confirm returns an error if the groups of a tensor are not among the configured ones.
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
