// Package soak is a load test of a running server. First it sends concurrent chats of mixed length, whose answers must
// equal the golden outputs of the built-in model. Then it sends many short requests, some of which it cancels. At the
// end the server must have released all resources.
//
// By default it starts a server on the CPU and sends a few requests. SPARROW_SOAK_URL is the address of a server on
// this machine that serves the built-in model, SPARROW_SOAK_REQUESTS the number of requests for it (10,000).
package soak
