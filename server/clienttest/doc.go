// Package clienttest contains only tests: they use the official OpenAI clients, and faulty ones, with a real server.
//
// Each test opens the built-in model, serves it on a loopback port, and uses it as an application would: through
// OpenAI's Go client, through its JavaScript client if node and npm are installed (folder js), or byte by byte over
// TCP. The tests check that the responses, the errors and the server's own counters are what those clients rely on.
//
// No other package takes as long to compile as OpenAI's Go client. The files that import it have the build tag openai,
// which make check and make long set.
package clienttest
