// Package load sends completions to a server and measures how it answers: time to the first token, time between
// tokens, throughput.
//
// Options flow in: how many requests, when they arrive (a Poisson process, or a fixed number at a time), how long
// prompts and answers are and how much of a prompt is shared. A Report with percentiles flows out. Prompts are token
// ids, so their lengths are exact; they are drawn from a seed, so two runs send the same ones. The package speaks
// OpenAI's protocol and knows no engine, and it refuses addresses beyond this machine unless it is told otherwise.
package load
