// Package load sends completions to a server and measures how it answers: time to the first token, time between
// tokens, throughput.
//
// Options flow in: how many requests, when they arrive (a Poisson process, or a fixed number at a time), how long
// prompts and answers are and how much of a prompt is shared. A Report with percentiles flows out. Prompts are token
// ids, so their lengths are exact; they are generated from a seed, so two runs send the same ones. The package uses
// OpenAI's protocol and is independent of the engine. It refuses addresses of other machines unless AllowRemote is set.
package load
