package host

import (
	"strconv"
	"strings"
)

// Large buffers use huge pages: cache rows are read in random order, and with small pages nearly every row would cost a
// TLB miss.
const (
	hugePage = 2 << 20
	large    = 2 * hugePage
)

// parseNodes returns the number of nodes in a list such as "0-3". Lists with gaps, and more nodes than a word has bits,
// count as one node: then memory is not interleaved.
func parseNodes(list string) int {
	_, last, ok := strings.Cut(list, "0-")
	n, err := strconv.Atoi(last)
	if !ok || err != nil || list != "0-"+last || n < 1 || n > 63 {
		return 1
	}
	return n + 1
}
