package grammar

import "fmt"

// State is a document in progress. It belongs to one sequence; to undo later tokens, keep a copy made by [State.Clone],
// which is cheap.
type State struct {
	g     *Grammar
	arena *arena
	id    int32
	ended bool
}

// Clone returns an independent copy.
func (s *State) Clone() *State {
	c := *s
	return &c
}

// Done reports whether the document is complete. It may still be possible to continue, for example with 2 after the
// document 1.
func (s *State) Done() bool {
	s.lock()
	defer s.g.mu.Unlock()
	return s.arena.states[s.id].done
}

// Final reports whether the document is complete and only the end of the sequence can follow.
func (s *State) Final() bool {
	s.lock()
	defer s.g.mu.Unlock()
	st := &s.arena.states[s.id]
	return s.ended || st.done && len(st.configs) == 0
}

// Mask fills dst, of at least [Tokens.MaskWords] words, with the tokens that are allowed next: bit id%64 of word id/64.
// End-of-sequence tokens are among them if the document is complete. After such a token was accepted, the mask is
// empty.
func (s *State) Mask(dst []uint64) error {
	words := s.g.tokens.MaskWords()
	if len(dst) < words {
		return fmt.Errorf("%w: %d words for %d tokens; %d are needed", ErrMask, len(dst), s.g.tokens.size, words)
	}
	clear(dst)
	if s.ended {
		return nil
	}
	s.lock()
	defer s.g.mu.Unlock()
	found := s.arena.mask(s.id, dst[:words])
	if s.arena.states[s.id].done {
		for _, id := range s.g.tokens.eos {
			dst[id/64] |= 1 << (id % 64)
			found = true
		}
		return nil
	}
	if !found {
		return fmt.Errorf("%w: no token of the vocabulary of %d begins with an allowed byte", ErrNoToken,
			s.g.tokens.size)
	}
	return nil
}

// Accept advances the state by one token. On an error, which wraps [ErrRejected], the state is unchanged.
func (s *State) Accept(token int32) error {
	t := s.g.tokens
	if token < 0 || int(token) >= t.size {
		return fmt.Errorf("%w: token %d is outside the vocabulary of %d tokens", ErrRejected, token, t.size)
	}
	if s.ended {
		return fmt.Errorf("%w: token %d after the end of the sequence", ErrRejected, token)
	}
	for _, id := range t.eos {
		if id != token {
			continue
		}
		if !s.Done() {
			return fmt.Errorf("%w: end of sequence (token %d) before the document is complete", ErrRejected, token)
		}
		s.ended = true
		return nil
	}
	b := t.bytes(token)
	if len(b) == 0 {
		return fmt.Errorf("%w: token %d is special or has no text", ErrRejected, token)
	}
	if at := s.feed(b); at >= 0 {
		return fmt.Errorf("%w: token %d, %q, does not fit the grammar at its byte %d", ErrRejected, token, b, at)
	}
	return nil
}

// feed advances the state by bytes. It returns the index of the first byte that is not allowed, or -1.
func (s *State) feed(b []byte) int {
	s.lock()
	defer s.g.mu.Unlock()
	id := s.id
	for i, c := range b {
		if id = s.arena.step(id, c); id == dead {
			return i
		}
	}
	s.id = id
	return -1
}

// lock locks the grammar and moves the state to its current arena, or to a new one if that is full.
func (s *State) lock() {
	s.g.mu.Lock()
	s.g.makeRoom()
	if s.arena != s.g.arena {
		s.id = s.g.arena.adopt(s.arena, s.id)
		s.arena = s.g.arena
	}
}

// clip returns the part of a text around a byte offset, for error messages.
func clip(s string, at int) string {
	const around = 40
	return s[max(0, at-around):min(len(s), at+around)]
}
