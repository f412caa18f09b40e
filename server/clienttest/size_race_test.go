//go:build openai && race

package clienttest

// These are the sizes of the longest tests under the race detector, which makes the model about ten times slower.
// Requests are of the same kinds as without it, but fewer and shorter.
const (
	companyRequests = 12
	companyFiller   = 4
	sharedSentences = 40
	sharedTokens    = 400
	schemaDraws     = 1
)
