package plan

import (
	"fmt"
	"strings"
)

// Divide is the model as one of several ranks sees it that share it: an equal
// part of the query heads. Its cache and its indexer are whole.
func (m Model) Divide(ranks int) (Model, error) {
	if ranks == 1 {
		return m, nil
	}
	divides := func(n int) bool {
		return n > 0 && m.Heads%n == 0 && m.Experts.Count%n == 0
	}
	if !divides(ranks) {
		what := fmt.Sprintf("%d query heads", m.Heads)
		if m.Experts.Count > 0 {
			what += fmt.Sprintf(" and %d experts", m.Experts.Count)
		}
		var list []string
		near := 1
		for n := 1; n <= m.Heads; n++ {
			if !divides(n) {
				continue
			}
			if list = append(list, fmt.Sprint(n)); n < ranks {
				near = n
			}
		}
		return m, &Error{Code: E08, Asked: fmt.Sprintf("%s in equal parts on %d ranks", what, ranks),
			Supported: strings.Join(list, ", ") + " ranks", Try: fmt.Sprintf("%d ranks", near)}
	}
	m.Heads /= ranks
	m.Ranks = ranks
	return m, nil
}

// ranks says how several ranks share the model (dispatch 15).
func (r *resolver) ranks() {
	m := r.model
	if m.Ranks < 2 {
		return
	}
	r.reason("dispatch 15", "%d ranks share attention by heads: each computes %d of %d and a part of the sum over "+
		"heads, which all of them add up in one order", m.Ranks, m.Heads, m.Heads*m.Ranks)
	r.reason("dispatch 15", "each rank holds the whole cache and computes the whole indexer: latent rows and keys "+
		"belong to no head, and every rank needs every selection")
	if n := m.Experts.Count; n > 0 {
		r.reason("dispatch 15", "each rank has %d of %d experts, and 1/%d of the inner values of dense and shared "+
			"feed-forward blocks, of the embeddings and of the head", n/m.Ranks, n, m.Ranks)
	}
}
