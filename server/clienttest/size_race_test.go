//go:build openai && race

package clienttest

// The sizes of the longest tests under the race detector, which makes the model about ten times slower: the same kinds
// of requests, but fewer and shorter.
const (
	companyRequests = 12
	companyFiller   = 4
	sharedSentences = 40
	sharedTokens    = 400
	schemaDraws     = 1
)
