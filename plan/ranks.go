package plan

import (
	"fmt"
	"strings"
)

// Division is the way in which ranks divide attention. Experts, feed-forward blocks and the vocabulary are divided in
// the same way whether attention is divided by heads or by requests.
type Division uint8

// ByHeads gives every rank some heads of all sequences, so each rank has the whole cache. ByRequests gives every rank
// all heads of some sequences, so each rank has the cache of its own sequences. DivisionUnset divides heads if that
// needs no padding.
const (
	DivisionUnset Division = iota
	ByHeads
	ByRequests
)

var divisions = enum[Division]{"division of attention", []string{"", "tp", "dp"}}

func (d Division) String() string                { return divisions.text(d) }
func (d Division) MarshalText() ([]byte, error)  { return divisions.marshal(d) }
func (d *Division) UnmarshalText(t []byte) error { return divisions.unmarshal(d, t) }

// ParseDivision reads a division; the word auto leaves it unset.
func ParseDivision(word string) (Division, error) {
	if fold(word) == "auto" {
		return DivisionUnset, nil
	}
	var d Division
	return d, d.UnmarshalText([]byte(word))
}

// Divide returns the model of one of several ranks. If heads are divided, the rank has an equal part of the query
// heads, padded if their number is not divisible by the number of ranks, and the whole cache. If requests are divided,
// it has all heads and a part of the sequences.
func (m Model) Divide(ranks int, how Division) (Model, error) {
	if ranks == 1 {
		return m, nil
	}
	if m.Pooled() {
		return m, &Error{Code: E08, Asked: fmt.Sprintf("%s on %d ranks", m.Family, ranks), Supported: "1 rank",
			Try: "1 rank"}
	}
	if ranks < 1 || m.Experts.Count%ranks != 0 {
		return m, m.notDivided(ranks)
	}
	together := max(m.GroupHeads, 1)
	groups := (m.Heads + together - 1) / together
	if how == DivisionUnset {
		if how = ByHeads; groups%ranks != 0 {
			how = ByRequests
		}
	}
	m.Ranks, m.Division = ranks, how
	if how == ByHeads {
		all := m.Heads
		m.Heads = (groups + ranks - 1) / ranks * together
		m.PaddedHeads = m.Heads*ranks - all
	}
	return m, nil
}

// notDivided returns an error if the number of experts is not divisible by the number of ranks. It names the numbers
// that work.
func (m *Model) notDivided(ranks int) error {
	if m.Experts.Count == 0 {
		return &Error{Code: E08, Asked: fmt.Sprintf("%d ranks", ranks), Supported: "at least 1", Try: "1 rank"}
	}
	var list []string
	near := 1
	for n := 1; n <= m.Experts.Count; n++ {
		if m.Experts.Count%n != 0 {
			continue
		}
		if list = append(list, fmt.Sprint(n)); n < ranks {
			near = n
		}
	}
	return &Error{Code: E08, Asked: fmt.Sprintf("%d experts in equal parts on %d ranks", m.Experts.Count, ranks),
		Supported: strings.Join(list, ", ") + " ranks", Try: fmt.Sprintf("%d ranks", near)}
}

// Divided adds the reason that describes how several ranks share the model (dispatch 15).
func (n *Notes) Divided(m *Model) {
	if m.Ranks < 2 {
		return
	}
	if m.ByRequests() {
		n.Because("dispatch 15", "%d ranks share attention by requests: each computes all %d heads of its own "+
			"sequences and holds their pages alone, so that all together hold %d times the tokens of one; rows are "+
			"gathered before the feed-forward blocks", m.Ranks, m.Heads, m.Ranks)
	} else {
		n.Because("dispatch 15", "%d ranks share attention by heads: each computes %d of %d and a part of the sum "+
			"over heads; every rank adds the parts in the same order", m.Ranks, m.Heads, m.Heads*m.Ranks)
		if padded := m.PaddedHeads; padded > 0 {
			n.Because("dispatch 15", "%d heads are padding, on the last ranks: the %d of the model%s do not divide by "+
				"%d; their weights are zeros, so they cost time and add nothing (--attention dp needs no padding)",
				padded, m.Heads*m.Ranks-padded, m.inGroups(), m.Ranks)
		}
		n.Because("dispatch 15", "each rank holds the whole cache and computes the whole indexer: latent rows and "+
			"keys belong to no head, and every rank needs every selection (--attention dp gives each sequence to "+
			"one rank)")
	}
	if experts := m.Experts.Count; experts > 0 {
		n.Because("dispatch 15", "each rank has %d of %d experts, and 1/%d of the inner values of dense and shared "+
			"feed-forward blocks, of the embeddings and of the head", experts/m.Ranks, experts, m.Ranks)
	}
}

// inGroups returns the part of a message that states how many heads must stay together on a rank, or an empty text.
func (m *Model) inGroups() string {
	if m.GroupHeads < 2 {
		return ""
	}
	return fmt.Sprintf(", which stay together in groups of %d,", m.GroupHeads)
}

// Share is the part of a pass whose attention one rank computes. The rows of a rank are consecutive.
type Share struct {
	FirstRow int `json:"first_row"`
	Rows     int `json:"rows"`
	Light    Run `json:"light,omitzero"`   // V4: the rank's part of the completed entries of ratio 4
	Heavy    Run `json:"heavy,omitzero"`   // V4: the rank's part of the completed entries of ratio 128
	Drafted  Run `json:"drafted,omitzero"` // V4: the rank's part of the rows that the drafting block computes
}

// Share returns the rows of a rank: all rows of the pass if attention is not divided by requests.
func (p *Plan) Share(rank int) Share {
	if p.Shares != nil {
		return p.Shares[rank]
	}
	return Share{Rows: p.Rows, Light: Run{Count: p.Input(CloseSlots).Rows},
		Heavy: Run{Count: p.Input(HeavyCloses).Rows}, Drafted: Run{Count: p.Input(DraftRows).Rows}}
}

// ByRank calls visit for each request, sorted by rank. This is the order of V4's completed entries and of the computed
// rows of its drafting block.
func (b *Batch) ByRank(cfg *Config, visit func(request int) error) error {
	ranks := 1
	if cfg.Model.ByRequests() {
		ranks = cfg.Model.Ranks
	}
	for rank := range ranks {
		for i := range b.Requests {
			if ranks > 1 && b.Requests[i].Rank != rank {
				continue
			}
			if err := visit(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// shares determines which part of the pass each rank computes, and where the rows of each rank begin and end.
func (w *Builder) shares() {
	p, m := w.plan, &w.cfg.Model
	if !m.ByRequests() {
		return
	}
	p.Shares = make([]Share, m.Ranks)
	p.RowBounds, p.DraftBounds = make([]int, m.Ranks+1), make([]int, m.Ranks+1)
	for i := range p.Segments {
		p.Shares[p.Segments[i].Rank].Rows += p.Segments[i].Rows
	}
	for i := range w.b.Requests {
		s := &p.Shares[w.b.Requests[i].Rank]
		s.Light.Count += w.b.Closing(w.cfg, i, m.lightRatio())
		s.Heavy.Count += w.b.Closing(w.cfg, i, ratio128)
		s.Drafted.Count += min(w.b.Rows(w.cfg, i), m.Window)
	}
	for r := range p.Shares {
		s := &p.Shares[r]
		if r > 0 {
			before := &p.Shares[r-1]
			s.FirstRow, s.Light.First, s.Heavy.First, s.Drafted.First = before.FirstRow+before.Rows, before.Light.End(),
				before.Heavy.End(), before.Drafted.End()
		}
		p.RowBounds[r+1], p.DraftBounds[r+1] = s.FirstRow+s.Rows, s.Drafted.End()
	}
}
