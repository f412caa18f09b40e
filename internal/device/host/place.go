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

// parseNodes returns the number of nodes in a list such as "0-3". It returns 1, so that memory is not interleaved, for
// a list with gaps or more nodes than bits in a word.
func parseNodes(list string) int {
	_, last, ok := strings.Cut(list, "0-")
	n, err := strconv.Atoi(last)
	if !ok || err != nil || list != "0-"+last || n < 1 || n > 63 {
		return 1
	}
	return n + 1
}
