package sample

import "errors"

// ErrParams is wrapped by every error of [Params.Validate] and [New]: a field of the request is invalid.
var ErrParams = errors.New("sample: invalid parameters")

// ErrLogits is wrapped when a row of logits holds NaN or +Inf, or has the wrong length: the forward pass failed, not
// the request.
var ErrLogits = errors.New("sample: unusable logits")

// ErrNoCandidate is wrapped when no token is left to choose: every logit is -Inf or the mask allows none of the others.
var ErrNoCandidate = errors.New("sample: no token left to choose from")

// ErrToken is wrapped when a token id is outside the vocabulary.
var ErrToken = errors.New("sample: token outside the vocabulary")
