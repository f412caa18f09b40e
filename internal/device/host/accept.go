package host

import (
	"fmt"

	"sparrow/kernel"
)

// Accept compares drafts with the target's tokens. It only copies words, so every CPU device uses it.
func Accept(a kernel.AcceptArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	out := RowI32(a.Out, 0)
	for i := range a.Words.Rows {
		w := RowI32(a.Words, i)
		place, sequence, values := int(w[0]), int(w[1]), w[2:]
		next := place < 0 // the word is the token after the accepted drafts
		if next {
			place = -1 - place
		}
		if uint(place) >= uint(len(out)) || uint(sequence) >= uint(a.Drafts.Rows) {
			return fmt.Errorf("%w: accept: word %d (of %d) or sequence %d (of %d) is out of range", kernel.ErrArgument,
				place, len(out),
				sequence, a.Drafts.Rows)
		}
		right, err := rightDrafts(&a, sequence)
		if err != nil {
			return err
		}
		switch at := int(RowI32(a.Drafts, sequence)[0]) + right; {
		case !next:
			out[place] = values[right]
		case uint(at) >= uint(a.Tokens.Rows):
			return fmt.Errorf("%w: accept: token %d is outside the %d tokens", kernel.ErrArgument, at, a.Tokens.Rows)
		default:
			out[place] = RowI32(a.Tokens, at)[0]
		}
	}
	return nil
}

// rightDrafts returns the number of accepted drafts of a sequence.
func rightDrafts(a *kernel.AcceptArgs, sequence int) (n int, err error) {
	d := RowI32(a.Drafts, sequence)
	first, ranges := int(d[0]), d[1:]
	for ; 2*n < len(ranges) && ranges[2*n] <= ranges[2*n+1]; n++ {
		if uint(first+n) >= uint(a.Tokens.Rows) {
			return 0, fmt.Errorf("%w: accept: token %d is outside the %d tokens", kernel.ErrArgument, first+n,
				a.Tokens.Rows)
		}
		if t := RowI32(a.Tokens, first+n)[0]; t < ranges[2*n] || t > ranges[2*n+1] {
			break
		}
	}
	return n, nil
}
