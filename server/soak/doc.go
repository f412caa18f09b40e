// Package soak holds a load test of a running server: prompts of chats of mixed length at once, whose answers must be
// the golden outputs of the built-in model, and then many short requests, some of whose clients leave, after which the
// server must have released everything.
//
// Without further settings it starts a server on the CPU and sends a few. SPARROW_SOAK_URL names a server on this
// machine that serves the built-in model, SPARROW_SOAK_REQUESTS how many requests it gets (10,000).
package soak
