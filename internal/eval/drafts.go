package eval

import "sparrow"

// Drafts counts drafted and accepted tokens.
type Drafts struct {
	Verifies int64 `json:"verifies"` // number of verifications: one per sequence and step with drafts
	Drafted  int64 `json:"drafted"`
	Accepted int64 `json:"accepted"`
	Tokens   int64 `json:"tokens"` // number of tokens that verifications produced
	// TokensPerVerify is Tokens / Verifies. It includes the token that the target model adds after the accepted drafts,
	// unless the answer ended before.
	TokensPerVerify float64 `json:"tokens_per_verify"`
	Ended           int64   `json:"ended"` // number of sequences that stopped drafting because it saved no time
	// Places counts drafts by their position in the draft chain, the first one first.
	Places []Place `json:"places"`
}

// Place counts the drafts at one position of the chain whose predecessors were all accepted, and how many were
// accepted.
type Place struct {
	Judged int64   `json:"judged"`
	Right  int64   `json:"right"`
	Share  float64 `json:"share"`
}

// DraftsOf returns the draft counters of an engine, or nil if nothing was drafted.
func DraftsOf(e *sparrow.Engine) *Drafts {
	s := e.Stats()
	if s.Verified == 0 {
		return nil
	}
	d := &Drafts{Verifies: s.Verified, Drafted: s.Drafted, Accepted: s.Accepted, Tokens: s.VerifiedTokens,
		Ended: s.DraftsEnded, TokensPerVerify: float64(s.VerifiedTokens) / float64(s.Verified)}
	for _, p := range s.Drafts {
		if p.Judged > 0 {
			d.Places = append(d.Places, Place{p.Judged, p.Right, share(int(p.Right), int(p.Judged))})
		}
	}
	return d
}

// printDrafts prints the acceptance rates of drafts.
func (r *Report) printDrafts(p *printer) {
	d := r.Drafts
	if d == nil {
		return
	}
	p.line("drafts: %d verified in %d verifications, %d accepted; %.2f tokens per verification", d.Drafted, d.Verifies,
		d.Accepted, d.TokensPerVerify)
	for i, x := range d.Places {
		p.line("  draft %d accepted: %5s %% of %d", i+1, percent(x.Share), x.Judged)
	}
}
