package sample

import "errors"

// ErrParams is wrapped by errors of [Params.Validate] and [New] about invalid parameters of a request.
var ErrParams = errors.New("sample: invalid parameters")

// ErrLogits means that a row of logits contains NaN or +Inf, or has the wrong length, because the forward pass failed.
var ErrLogits = errors.New("sample: unusable logits")

// ErrNoCandidate means that no token can be chosen: every logit that the mask allows is -Inf.
var ErrNoCandidate = errors.New("sample: no token left to choose from")

// ErrToken means that a token id is outside the vocabulary.
var ErrToken = errors.New("sample: token outside the vocabulary")
