//go:build openai

package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/server"
)

// TestCompanyChangesNothing checks that concurrent requests, greedy and sampled, short and long, get the same answers
// as each of them alone.
func TestCompanyChangesNothing(t *testing.T) {
	one := func(i int) openai.ChatCompletionNewParams {
		p := ask(fmt.Sprintf("Jack saves %d dollars every week for %d weeks. How many dollars is that?", 3+i, 2+i%9))
		switch i % 4 {
		case 1:
			p.Messages = ask(oddQuestion).Messages
			p.Temperature, p.Seed, p.MaxTokens = openai.Float(2), openai.Int(int64(i)), openai.Int(20)
		case 2:
			p.Messages = ask(story(companyFiller+i) + "Question: Tell me the pet of Maya.").Messages
		case 3:
			p.Messages = ask(nameQuestion).Messages
		}
		return p
	}
	s := start(t, sparrow.Config{}, server.Options{})
	alone := make([]string, companyRequests)
	for i := range alone {
		alone[i] = text(t, s.chat(t, one(i)))
	}
	together := start(t, sparrow.Config{}, server.Options{}) // the cache of this server is empty
	var all sync.WaitGroup
	for i := range companyRequests {
		all.Go(func() {
			client := together.client()
			r, err := client.Chat.Completions.New(t.Context(), one(i))
			if err != nil {
				t.Errorf("request %d: %v: %s", i, err, errorText(err))
			} else if got := r.Choices[0].Message.Content; got != alone[i] {
				t.Errorf("request %d: %q in company, %q alone", i, got, alone[i])
			}
		})
	}
	all.Wait()
	if ended := together.metric(t, `sparrow_requests_ended_total{outcome="finished"}`); ended != companyRequests {
		t.Errorf("%v requests finished", ended)
	}
}

// TestASharedPrefixIsComputedOnce checks that for the second question about a long text only the tokens that differ are
// computed, and that the usage reports the cached tokens.
func TestASharedPrefixIsComputedOnce(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	about := story(sharedSentences)
	questions := []string{about + "Question: Tell me the pet of Maya.",
		about + "Question: Tell me the locker number of Tina."}
	first, second := s.tokens(t, questions[0]), s.tokens(t, questions[1])
	shared := 0
	for shared < min(len(first), len(second)) && first[shared] == second[shared] {
		shared++
	}
	if shared < sharedTokens {
		t.Fatalf("the texts share %d tokens, want %d", shared, sharedTokens)
	}
	page := s.engine.Info().PageTokens
	for i, c := range []struct {
		answer string
		cached int
	}{{"The pet of Maya is owl.", 0}, {"The locker number of Tina is 100.", shared / page * page}} {
		r := s.chat(t, ask(questions[i]))
		wantChat(t, r, c.answer, "stop")
		if got := r.Usage.PromptTokensDetails.CachedTokens; got != int64(c.cached) {
			t.Errorf("question %d: %d tokens from the cache, want %d of the %d shared", i, got, c.cached, shared)
		}
	}
	if hits := s.metric(t, "sparrow_prefix_hit_tokens_total"); hits != float64(shared/page*page) {
		t.Errorf("%v tokens hit", hits)
	}
}

// tokens returns the token ids of a question's prompt, as the server tokenizes it.
func (s *service) tokens(t *testing.T, question string) []int {
	t.Helper()
	body, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": question}}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(s.url()+"/tokenize", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out struct{ Tokens []int }
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || len(out.Tokens) == 0 {
		t.Fatalf("status %d: %v", res.StatusCode, err)
	}
	return out.Tokens
}
