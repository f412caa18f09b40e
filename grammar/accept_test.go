package grammar

import "fmt"

// AcceptString advances the state by text that does not come from a token. On an error the state is unchanged.
func (s *State) AcceptString(text string) error {
	if s.ended {
		return fmt.Errorf("%w: text after the end of the sequence", ErrRejected)
	}
	if at := s.feed([]byte(text)); at >= 0 {
		return fmt.Errorf("%w: byte %d (%q) of %q", ErrRejected, at, text[at], clip(text, at))
	}
	return nil
}
