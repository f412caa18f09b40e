// Package clienttest contains only tests of a real server with OpenAI's clients and with faulty clients.
//
// Each test serves the built-in model on a loopback port. Clients are OpenAI's Go client, its JavaScript client if node
// and npm are installed (folder js), and raw TCP connections. The tests check responses, errors and the server's
// counters.
//
// OpenAI's Go client takes long to compile, so the files that import it have the build tag openai, which make check and
// make long set.
package clienttest
