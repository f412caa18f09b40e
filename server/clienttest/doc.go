// Package clienttest holds no code of its own: its tests put the official OpenAI clients, and broken ones, in front
// of a real server.
//
// Each test opens the built-in model, serves it on a loopback port, and uses it as an application would: through
// OpenAI's Go client, through its JavaScript client where node and npm are there (folder js), or byte by byte over
// TCP. What flows out is whether the answers, the errors and the server's own counters are what those clients rely
// on.
//
// No other package takes as long to compile as OpenAI's Go client. The files that import it have the build tag openai,
// which make check and make long set.
package clienttest
