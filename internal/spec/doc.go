// Package spec decides how many tokens are drafted before the next verification.
//
// Its inputs are the user's setting, the times of forward and draft passes, and the number of accepted drafts of each
// request. For each request it returns the number of drafts with the highest expected tokens per second, or ends
// drafting if it costs more time than it saves. The package uses no tokens, no model and no clock. Its decisions do not
// change the output of a request: a drafted token is accepted only if it equals the token that sampling from the
// target's logits chooses at its position (see package sample about random numbers).
//
// A [Controller] holds what all requests have in common: measured times and acceptance rates. A [Request] holds the
// acceptance rates of one request.
package spec
