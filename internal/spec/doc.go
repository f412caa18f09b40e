// Package spec decides how many tokens are drafted before the next verify.
//
// In flow the user's setting, how long forward and draft passes took, and how many drafts of each request were
// accepted; out flows, for each request, the number of drafts that is expected to give the most tokens per second, or
// that drafting does not pay for it. The package sees no tokens, no model and no clock. Whatever it decides, the output
// of a request stays the same: a drafted token is kept only when it is the token that the target's own sampling chooses
// at its position (see package sample on randomness), so drafting changes only the time.
//
// A [Controller] has what all requests share: costs on this machine and acceptance rates so far. A [Request] holds the
// acceptance of one request.
package spec
