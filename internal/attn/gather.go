package attn

// Gather lists the cached entries that rows of a pass attend to, ordered by request. Rows of one request are adjacent,
// in ascending order, so the request's last row has the largest number of entries.
type Gather struct {
	Request []int32 // [T]: the row's request
	Lens    []int32 // [T]: number of entries that the row attends to
	Start   []int32 // [T]: set by Fill: index in the list of the first entry of the row's request
}

// Fill writes the slots of the entries that the rows [first, last) attend to. place returns the slot of entry i of a
// request.
func (g Gather) Fill(to []int32, first, last int, place func(request, i int) int32) {
	at := 0
	for r := first; r < last; {
		end := RequestEnd(g.Request, r, last)
		for i := r; i < end; i++ {
			g.Start[i] = int32(at)
		}
		for i := range int(g.Lens[end-1]) {
			to[at] = place(int(g.Request[r]), i)
			at++
		}
		r = end
	}
}

// RequestEnd returns the end, at most last, of the range of rows that belong to the same request as row r.
func RequestEnd(request []int32, r, last int) int {
	end := r + 1
	for end < last && request[end] == request[r] {
		end++
	}
	return end
}
