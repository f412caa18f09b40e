// Package spec decides how many tokens are drafted before the next verify.
//
// In flow the user's setting, how long steps and drafting passes took, and how many drafts of each request proved right; out flows, for each
// request, the number of drafts that is expected to give the most tokens per second, or the news that drafting does not pay for it. The
// package sees no tokens, no model and no clock. Whatever it decides, the output of a request stays the same: a drafted token is kept only
// when it is the very token that the target's own sampling chooses at its place (see package sample on randomness), so drafting is a matter
// of time alone.
//
// A [Controller] is what all requests share: costs on this machine and how often drafts were right so far. A [Request] is what one request
// adds: its own acceptance.
package spec
