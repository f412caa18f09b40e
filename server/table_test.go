package server

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/wiretable"
	"sparrow/sample"
)

// answering returns a script for an answer in which all counts differ: a chat that reasons, writes text and calls a
// tool, or a text of two tokens. finish is the reason why the answer ends.
func answering(finish sparrow.Finish, matched string) func(sparrow.Request) ([]sparrow.Event, error) {
	return func(r sparrow.Request) ([]sparrow.Event, error) {
		if r.Score != nil {
			return scoring(r)
		}
		token := func(id byte, p float64) sparrow.Token {
			return sparrow.Token{ID: int32(id), Text: string(id), Logprob: p,
				Top: []sample.TokenLogprob{{Token: 'z', Logprob: -0.125}, {Token: int32(id), Logprob: p}}}
		}
		last := sparrow.Event{Finish: finish, Matched: matched, Usage: &sparrow.Usage{PromptTokens: 70,
			CachedTokens: 11, CompletionTokens: 23, ReasoningTokens: 5, DraftedTokens: 9, AcceptedTokens: 4}}
		events := []sparrow.Event{{Text: "a", Tokens: []sparrow.Token{token('a', -1)}},
			{Text: "b", Tokens: []sparrow.Token{token('b', -2)}}}
		if r.Chat != nil {
			events[0].Deltas = []chat.Delta{{Kind: chat.DeltaReasoning, Text: "a"}}
			events[1].Deltas = []chat.Delta{{Kind: chat.DeltaContent, Text: "b"}}
			if finish == sparrow.FinishToolCalls {
				events = append(events, sparrow.Event{Tokens: []sparrow.Token{token('c', -3)}, Deltas: []chat.Delta{
					{Kind: chat.DeltaToolCall, Call: chat.CallDelta{ID: "c1", Name: "f", Arguments: `{"x":1}`}}}})
			}
		}
		if finish == sparrow.FinishError {
			last.Usage, last.Err = nil, sparrow.ErrDevice
		}
		var all []sparrow.Event
		for choice := range max(r.Sampling.N, 1) {
			for _, ev := range events {
				ev.Choice = choice
				all = append(all, ev)
			}
			all = append(all, sparrow.Event{Choice: choice, Finish: finish, Matched: matched, Err: last.Err})
		}
		all[len(all)-1].Usage = last.Usage
		return all, nil
	}
}

var (
	randomID = regexp.MustCompile(`\b(msg|resp|rs|fc|ctc|in_resp)_[A-Z2-7]{26}`)
	duration = regexp.MustCompile(`_duration":\d+`)
	// choiceIndex finds the index of the choice that a line belongs to, or the end of a stream.
	choiceIndex = regexp.MustCompile(`"index":\d+|\[DONE\]`)
	moment      = regexp.MustCompile(`"(created_at|modified_at|expires_at)":"[^"]*"`)
)

const functionTools = `"tools":[{"type":"function","function":{"name":"f"}}]`

// asks has the paths of endpoints and the members of valid bodies, without the model.
var asks = []struct{ path, body string }{
	{"/v1/chat/completions",
		`"messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":2,` + functionTools},
	{"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}],"n":2,
		"stream_options":{"include_usage":true}`},
	{"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}],"stream_options":{"include_usage":true,
		"continuous_usage_stats":true},"functions":[{"name":"f"}]`},
	{"/v1/completions", `"prompt":["p","q"],"logprobs":2,"n":2,"max_tokens":9`},
	{"/v1/completions", `"prompt":"p","echo":true,"logprobs":1,"max_tokens":9,"suffix":""`},
	{"/v1/completions", `"prompt":[7,8],"return_token_ids":true,"cache_salt":"s","priority":3,"max_tokens":9`},
	{"/v1/completions", `"prompt":"ab","return_token_ids":true,"max_tokens":9`},
	{"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}],"return_token_ids":true`},
	{"/v1/responses", `"input":"hi","instructions":"be brief","max_output_tokens":9,"metadata":{"k":"v"},
		"include":["message.output_text.logprobs","reasoning.encrypted_content"],
		"tools":[{"type":"function","name":"f","strict":true}],"parallel_tool_calls":false`},
	{"/v1/responses", `"input":"hi","reasoning":{"effort":"low","summary":"auto"},"store":false,
		"text":{"format":{"type":"json_schema","name":"n","schema":{},"strict":true}}`},
	{"/v1/messages", `"max_tokens":23,"messages":[{"role":"user","content":"hi"}],"stop_sequences":["END"],
		"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}`},
	{"/v1/messages", `"max_tokens":90,"messages":[{"role":"user","content":"hi"}],
		"thinking":{"type":"enabled","budget_tokens":8,"display":"omitted"}`},
	{"/api/chat", `"messages":[{"role":"user","content":"hi"}],"think":"high","options":{"num_predict":4}`},
	{"/api/generate", `"prompt":"hi","system":"s","format":"json"`},
	{"/api/generate", `"prompt":"hi","raw":true`},
	{"/v1/score", `"prompt":"ab","continuations":["c","de"],"logprobs":1,"cache_salt":"s"`},
	{"/generate", `"input_ids":[7,8],"return_logprob":true,"logprob_start_len":0,"sampling_params":{"stop":"x"}`},
	{"/v1/messages/count_tokens", `"messages":[{"role":"user","content":"hi"}],"system":"s"`},
	{"/tokenize", `"prompt":"ab","return_token_strs":true`}, {"/detokenize", `"tokens":[97,98]`},
}

// The golden table contains what each endpoint answers, whole and as a stream, for each finish reason, and what it
// requests from the engine. A missing field, a wrong count or a changed status changes the table.
func TestTableOfAnswers(t *testing.T) {
	var lines []string
	for _, end := range []struct {
		finish  sparrow.Finish
		matched string
	}{{sparrow.FinishStop, ""}, {sparrow.FinishStop, "END"}, {sparrow.FinishLength, ""}, {sparrow.FinishToolCalls, ""},
		{sparrow.FinishError, ""}} {
		e := newFake(answering(end.finish, end.matched))
		_, hs := start(t, e, Options{})
		for _, a := range asks {
			for _, stream := range []string{"false", "true"} {
				body := `{"model":"sparrow-test",` + a.body + `,"stream":` + stream + `}`
				if stream == "false" {
					body = strings.ReplaceAll(body, `"stream_options"`, `"ignored"`)
				}
				// The choices of two prompts arrive in any order, and after an error some of them do not arrive.
				several := stream == "true" && strings.Contains(a.body, `["p","q"]`)
				if several && end.finish == sparrow.FinishError {
					continue
				}
				if strings.Contains(a.path, "token") || a.path == "/v1/score" || a.path == "/generate" {
					if stream == "true" {
						continue
					}
					body = strings.Replace(body, `,"stream":false`, "", 1)
				}
				e.mu.Lock()
				e.requests = nil
				e.mu.Unlock()
				got := post(t, hs.URL+a.path, body)
				name := fmt.Sprintf("%s %q %s %s", end.finish, end.matched, a.path, body)
				name = strings.Join(strings.Fields(name), " ")
				lines = append(lines, name, fmt.Sprintf("  %d %s", got.status, got.header.Get("Content-Type")))
				text := moment.ReplaceAllString(duration.ReplaceAllString(got.body, `_duration":0`), `"$1":"T"`)
				text = randomID.ReplaceAllString(text, "${1}_X")
				if got.status != http.StatusOK {
					text = table.Facts(text)
				}
				answer := strings.Split(strings.TrimSpace(text), "\n")
				if several {
					slices.SortStableFunc(answer, func(a, b string) int {
						return strings.Compare(choiceIndex.FindString(a), choiceIndex.FindString(b))
					})
				}
				for _, line := range answer {
					if strings.Contains(line, `"error":`) && !strings.Contains(line, `"error":null`) {
						line = table.Facts(line) // the wording of messages may change
					}
					if line != "" {
						lines = append(lines, "  "+line)
					}
				}
				if end.finish == sparrow.FinishStop && end.matched == "" && stream == "false" {
					for _, r := range e.requests {
						r.Flow, _, _ = strings.Cut(r.Flow, ":") // the port is random
						lines = append(lines, "  the engine got "+wiretable.Text(r))
					}
				}
			}
		}
	}
	table.Check(t, "answers.txt", lines)
}
