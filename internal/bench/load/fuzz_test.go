package load

import (
	"strings"
	"testing"
	"time"
)

// FuzzStream checks that any response of a server gives either an error or a count of tokens.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{
		"data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"text\":\"\"}],\"usage\":{\"completion_tokens\":-5}}\n\ndata: [DONE]\n",
		"data: {\"choices\":[{\"text\":\"x\"}],\"usage\":{\"completion_tokens\":3}}\ndata:[DONE]",
		"data: {\"error\":{}}\n", ": comment\r\n\ndata:", "data: null\ndata: [DONE]\n", "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var o outcome
		if err := o.read(strings.NewReader(text), time.Now()); err == nil && (o.tokens < 1 || o.first < 0) {
			t.Fatalf("the outcome has %d tokens, the first after %v", o.tokens, o.first)
		}
	})
}
