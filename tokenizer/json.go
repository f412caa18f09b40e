package tokenizer

import (
	"errors"

	"sparrow/internal/jsonscan"
)

// asMalformed converts a JSON syntax error to ErrMalformed.
func asMalformed(err error) error {
	var syntax *jsonscan.SyntaxError
	if errors.As(err, &syntax) {
		return malformed("%v", syntax)
	}
	return err
}

// readID reads a token id: a plain integer from 0 to maxID.
func readID(s *jsonscan.Scanner) (int32, error) {
	s.Next()
	start := s.Pos
	text, err := s.Number()
	if err != nil {
		return 0, err
	}
	id := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			s.Pos = start
			return 0, s.Expected("a token id")
		}
		if id = id*10 + int(c-'0'); id > maxID {
			return 0, s.Errorf(start, "the token id is above %d, the highest supported one", maxID)
		}
	}
	return int32(id), nil
}
