//go:build openai && race

package clienttest

// How much the longest tests do under the race detector, which makes the model about ten times slower: the same kinds
// of requests, fewer and shorter.
const (
	companyRequests = 12
	companyFiller   = 4
	sharedSentences = 40
	sharedTokens    = 400
	schemaDraws     = 1
)
