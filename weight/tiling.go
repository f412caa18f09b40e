package weight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// checkTiling checks that the ranges of entries cover size bytes of data exactly once. The caller has checked that 0 <=
// begin <= end.
func checkTiling(p *problems, entries []entry, size int64) {
	order := make([]*entry, len(entries))
	for i := range entries {
		order[i] = &entries[i]
	}
	slices.SortFunc(order, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	covered := int64(0) // all bytes before this one belong to a tensor
	var last *entry     // entry that ends at covered
	var past *entry     // first entry that ends after the data
	more := 0           // number of further entries that end after the data
	for _, e := range order {
		switch {
		case e.end > size:
			if past == nil {
				past = e
			} else {
				more++
			}
		case e.begin < covered:
			p.add(e.at, e.name, "data_offsets [%d, %d) overlap [%d, %d) of tensor %q", e.begin, e.end, last.begin,
				last.end, clip(last.name))
		case e.begin > covered:
			p.add(e.at, e.name, "data_offsets [%d, %d) leave a gap: bytes [%d, %d) belong to no tensor", e.begin, e.end,
				covered, e.begin)
		}
		if e.end >= covered {
			covered, last = e.end, e
		}
	}
	if past != nil {
		others := ""
		if more > 0 {
			others = fmt.Sprintf(", and those of %d more tensors,", more)
		}
		p.add(past.at, past.name, "data_offsets [%d, %d)%s run past the %d bytes of data in the file (truncated? the "+
			"download may be incomplete)", past.begin, past.end, others, size)
	}
	if covered < size {
		p.add(0, "", "the last %d bytes of data, from data offset %d on, belong to no tensor", size-covered, covered)
	}
}

// shapeText returns a shape as text. A very long shape, which a hostile header may have, is shortened.
func shapeText(shape []int) string {
	const limit = 8
	if len(shape) > limit {
		return fmt.Sprintf("%s ... of %d dimensions]", strings.TrimSuffix(fmt.Sprint(shape[:limit]), "]"), len(shape))
	}
	return fmt.Sprint(shape)
}
