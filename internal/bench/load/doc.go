// Package load sends completions to a server and measures its latency and throughput: time to the first token, time
// between tokens, tokens per second.
//
// Options set the number of requests, their arrivals (a Poisson process, or a fixed concurrency), the lengths of
// prompts and answers, and the length of a shared prefix. The result is a Report with percentiles. Prompts are token
// ids, so their lengths are exact; they are generated from a seed, so two runs send the same prompts. The package uses
// OpenAI's protocol and is independent of the engine. It refuses addresses of other machines unless AllowRemote is set.
package load
