package engine

import (
	"slices"

	"sparrow/grammar"
	"sparrow/sample"
	"sparrow/toolcall"
)

// Guide constrains the text of a request's choices: by a grammar of the whole document, or by the tools that may be
// called. The zero value allows any text.
type Guide struct {
	Document *grammar.Grammar // grammar of the document; nil for free text
	// ReasoningEnd is the token that ends reasoning: Document applies only after this token. -1 means that the reply
	// begins with the document.
	ReasoningEnd int32
	// MaxReasoning is the maximum number of tokens before ReasoningEnd; after that many tokens ReasoningEnd is forced.
	// 0 means no limit.
	MaxReasoning int
	Calls        *toolcall.Rules // rules of tool calls; nil without tools
	MaskWords    int             // length of the masks of Document and Calls, in words
	NoCalls      sample.Mask     // excludes tokens that begin a tool call; nil if calls are allowed
	// Release is called once, when the request has ended, by the loop or by any caller that closes it. It may be nil.
	Release func()
}

// constraint determines which tokens are allowed next in one choice.
type constraint struct {
	document     *grammar.State // state of the document; nil for free text
	reasoningEnd int32          // the document applies after this token; -1 once it was generated
	mustEnd      sample.Mask    // mask that allows only the token that ends reasoning; nil if reasoning has no limit
	maxReasoning int
	calls        *toolcall.State // state of tool calls; nil without tools
	mask         sample.Mask     // reused memory for the masks of document and calls
	noCalls      sample.Mask     // value of Guide.NoCalls
	noEnd        sample.Mask     // excludes noCalls' tokens and those that end the choice; nil if there is no minimum
	eos          []int32
	ignoreEOS    bool
	made, least  int // number of generated tokens, and the minimum number before the choice may end
}

// start makes the constraint of one choice.
func (g *Guide) start(r *Request, vocabulary int, eos []int32) constraint {
	l := constraint{reasoningEnd: -1, mask: make(sample.Mask, g.MaskWords), noCalls: g.NoCalls, eos: eos,
		ignoreEOS: r.IgnoreEOS, least: r.MinTokens}
	if g.Document != nil {
		l.document, l.reasoningEnd = g.Document.Start(), g.ReasoningEnd
	}
	if g.MaxReasoning > 0 && g.ReasoningEnd >= 0 {
		l.reasoningEnd, l.maxReasoning = g.ReasoningEnd, g.MaxReasoning
		l.mustEnd = make(sample.Mask, (vocabulary+63)/64)
		l.mustEnd[g.ReasoningEnd/64] |= 1 << (g.ReasoningEnd % 64)
	}
	if g.Calls != nil {
		l.calls = g.Calls.Start()
	}
	if l.least > 0 {
		l.noEnd = sample.AllBut(vocabulary, eos, r.Sampling.StopTokenIDs)
		for i, word := range l.noCalls {
			l.noEnd[i] &= word
		}
	}
	return l
}

// clone returns a copy, which can be advanced by drafts without changing the constraint.
func (l *constraint) clone() constraint {
	c := *l
	if l.document != nil {
		c.document = l.document.Clone()
	}
	if l.calls != nil {
		c.calls = l.calls.Clone()
	}
	c.mask = make(sample.Mask, len(l.mask))
	return c
}

// free reports whether every token is always allowed.
func (l *constraint) free() bool {
	return l.document == nil && l.calls == nil && l.noCalls == nil && l.noEnd == nil && l.mustEnd == nil
}

// early reports whether the choice has fewer tokens than its minimum.
func (l *constraint) early() bool { return l.made < l.least }

// allowed returns the mask of the tokens that are allowed next; nil means that all tokens are allowed.
func (l *constraint) allowed() (sample.Mask, error) {
	if l.mustEnd != nil && l.reasoningEnd >= 0 && l.made >= l.maxReasoning {
		return l.mustEnd, nil
	}
	limited, err := l.fillMask()
	switch {
	case err != nil:
		return nil, err
	case limited && l.early():
		l.removeEnds()
		return l.mask, nil
	case limited:
		return l.mask, nil
	case l.early():
		return l.noEnd, nil
	}
	return l.noCalls, nil
}

// fillMask fills the mask from the document or the tool calls, and reports whether one of them limits the next token.
func (l *constraint) fillMask() (bool, error) {
	if l.document != nil && l.reasoningEnd < 0 {
		return true, l.document.Mask(l.mask)
	}
	if l.calls != nil {
		return l.calls.Mask(l.mask)
	}
	return false, nil
}

// removeEnds removes the tokens that end the choice from the mask, unless no other token is allowed: a complete
// document ends even below the minimum length.
func (l *constraint) removeEnds() {
	left := uint64(0)
	for i, word := range l.mask {
		left |= word & l.noEnd[i]
	}
	if left == 0 {
		return
	}
	for i := range l.mask {
		l.mask[i] &= l.noEnd[i]
	}
}

// accept advances the constraint by the token that was chosen.
func (l *constraint) accept(token int32) error {
	l.made++
	if l.calls != nil {
		if err := l.calls.Accept(token); err != nil {
			return err
		}
	}
	switch {
	case l.reasoningEnd == token:
		l.reasoningEnd = -1
	case l.reasoningEnd < 0 && l.document != nil:
		return l.document.Accept(token)
	}
	return nil
}

// eosToken reports whether a token is one of the model's end-of-sequence tokens, whose text is not part of the answer.
func (l *constraint) eosToken(token int32) bool { return slices.Contains(l.eos, token) }

// endsAt reports whether an end-of-sequence token ends the choice. A document ends at an end-of-sequence token even if
// the request ignores such tokens.
func (l *constraint) endsAt(token int32) bool {
	return (!l.ignoreEOS || l.document != nil) && l.eosToken(token)
}

// complete reports whether the choice is a complete document, so that only an end-of-sequence token can follow. If the
// model has no end-of-sequence token, the choice ends as soon as the document is valid.
func (l *constraint) complete() bool {
	return l.document != nil && l.reasoningEnd < 0 && (l.document.Final() || len(l.eos) == 0 && l.document.Done())
}
