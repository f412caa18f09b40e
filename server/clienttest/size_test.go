//go:build openai && !race

package clienttest

// The sizes of the longest tests.
const (
	companyRequests = 32
	companyFiller   = 20 // sentences of the shortest long prompt
	sharedSentences = 200
	sharedTokens    = 2000 // at least that many are shared
	schemaDraws     = 6
)
