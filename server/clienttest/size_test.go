//go:build openai && !race

package clienttest

// These are the sizes of the longest tests.
const (
	companyRequests = 32
	companyFiller   = 20 // number of filler sentences in the shortest of the long prompts
	sharedSentences = 200
	sharedTokens    = 2000 // minimum number of tokens that requests share
	schemaDraws     = 6
)
