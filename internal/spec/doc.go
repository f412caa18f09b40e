// Package spec decides how many tokens are drafted before the next verification.
//
// Its inputs are the user's setting, the times of forward and draft passes, and the number of accepted drafts of each
// request. For each request it returns the number of drafts with the highest expected tokens per second, or that
// drafting costs more time than it saves. The package handles no tokens, no model and no clock. Its decisions do not
// change the output of a request: a drafted token is kept only when it is the token that the target's own sampling
// chooses at its position (see package sample on randomness), so drafting changes only the time.
//
// A [Controller] holds the state that all requests share: costs on this machine and acceptance rates so far. A
// [Request] holds the acceptance of one request.
package spec
