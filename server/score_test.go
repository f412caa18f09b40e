package server

import (
	"slices"
	"strings"
	"testing"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/sample"
)

// scoring returns the events of an engine that gives token i of a continuation the log probability -i and has x as the
// most probable token. Unless the request only scores, the engine generates "y".
func scoring(r sparrow.Request) ([]sparrow.Event, error) {
	given := r.Tokens
	if given == nil {
		given = append([]int32{1}, toIDs(r.Prompt)...)
	}
	if r.Chat != nil {
		given = toIDs("<user>hi")
	}
	lists := [][]int32{given}
	if r.Score.Continuations != nil {
		lists = nil
		for _, c := range r.Score.Continuations {
			lists = append(lists, append(given[:len(given):len(given)], c...))
		}
	}
	var events []sparrow.Event
	for i, list := range lists {
		for at := r.Score.From; at < len(list); at++ {
			t := sparrow.Token{ID: list[at], Text: string([]byte{byte(list[at])})}
			if at > 0 {
				t.Rank, t.Logprob = 2, -float64(at)
				t.Top = []sample.TokenLogprob{{Token: 'x', Logprob: -0.5}}[:r.Score.Top]
			}
			events = append(events, sparrow.Event{Choice: i, Scored: []sparrow.Token{t}})
		}
		if !r.Score.Only && r.Score.Continuations == nil {
			y := sparrow.Token{ID: 'y', Text: "y", Logprob: -0.25,
				Top: []sample.TokenLogprob{{Token: 'y', Logprob: -0.25}}}
			events = append(events, sparrow.Event{Choice: i, Text: "y", Tokens: []sparrow.Token{y}})
		}
		events = append(events, sparrow.Event{Choice: i, Finish: sparrow.FinishLength})
	}
	events[len(events)-1].Usage = usage(1)
	return events, nil
}

func toIDs(text string) (ids []int32) {
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids
}

func TestLogprobsOfPrompts(t *testing.T) {
	_, hs := start(t, newFake(scoring), Options{})
	const begin = `{"model":"sparrow-test","prompt":`
	echoed := `{"tokens":["\u0001","a","b","y"],"token_logprobs":[null,-1,-2,-0.25],` +
		`"top_logprobs":[null,{"x":-0.5,"a":-1},{"x":-0.5,"b":-2},{"y":-0.25}],"text_offset":[0,0,1,2]}`
	for _, c := range []struct{ name, path, body, want string }{
		{"echo of a text", "/v1/completions", begin + `"ab","echo":true,"logprobs":1}`,
			`"text":"aby","logprobs":` + echoed},
		{"echo of ids", "/v1/completions", begin + `[97,98],"echo":true,"logprobs":0}`,
			`"text":"aby","logprobs":{"tokens":["a","b","y"],"token_logprobs":[null,-1,-0.25],"top_logprobs":null,` +
				`"text_offset":[0,1,2]}`},
		{"echo in a stream", "/v1/completions", begin + `"ab","echo":true,"logprobs":1,"stream":true}`,
			`"text":"aby","logprobs":` + echoed},
		{"echo and nothing else", "/v1/completions", begin + `"ab","echo":true,"logprobs":0,"max_tokens":0}`,
			`"text":"ab","logprobs":{"tokens":["\u0001","a","b"],"token_logprobs":[null,-1,-2],"top_logprobs":null,` +
				`"text_offset":[0,0,1]},"finish_reason":"length"`},
		{"vLLM's form", "/v1/completions", begin + `[97,98],"prompt_logprobs":1}`,
			`"prompt_logprobs":[null,{"120":{"logprob":-0.5,"rank":1,"decoded_token":"x"},` +
				`"98":{"logprob":-1,"rank":2,"decoded_token":"b"}}]`},
		{"vLLM's form alone", "/v1/completions", begin + `[97,98],"prompt_logprobs":0,"max_tokens":0}`,
			`"text":"","logprobs":null,"finish_reason":"length","prompt_logprobs":[null,` +
				`{"98":{"logprob":-1,"rank":2,"decoded_token":"b"}}]`},
		{"of ids", "/v1/score", begin + `[97],"continuations":[[98,99],[120]]}`,
			`"data":[{"index":0,"logprob":-3,"greedy":false,"logprobs":{"tokens":["b","c"],"token_logprobs":[-1,-2],` +
				`"top_logprobs":null,"text_offset":[1,2]}},{"index":1,"logprob":-1,"greedy":true,"logprobs":`},
		{"of texts", "/v1/score", begin + `"a","continuations":["bc"],"logprobs":1}`,
			`{"index":0,"logprob":-5,"greedy":false,"logprobs":{"tokens":["b","c"],"token_logprobs":[-2,-3],` +
				`"top_logprobs":[{"x":-0.5,"b":-2},{"x":-0.5,"c":-3}],"text_offset":[1,2]}}`},
		{"without a continuation", "/v1/score", begin + `"a"}`, `"param":"continuations"`},
		{"mixed kinds", "/v1/score", begin + `"a","continuations":[[1]]}`, `cannot be mixed`},
		{"that add nothing", "/v1/score", begin + `"a","continuations":["b",""]}`, `"param":"continuations[1]"`},
		{"after nothing", "/v1/score", begin + `"","continuations":["b"],"add_special_tokens":false}`, `"param":"prompt"`},
		{"more than may wait", "/v1/score", begin + `[1],"continuations":[[1],[1],[1],[1],[1],[1],[1],[1],[1]]}`,
			`at most 8 sequences may wait`},
		{"chats", "/v1/chat/completions", hello + `,"prompt_logprobs":0}`, `"prompt_logprobs":[null,{`},
	} {
		if got := post(t, hs.URL+c.path, c.body); !strings.Contains(got.body, c.want) {
			t.Errorf("%s: no %s in\n%d %s", c.name, c.want, got.status, got.body)
		}
	}
}

// The text offsets of a continuation begin after the prompt and after the tokens that contain text of both prompt and
// continuation.
func TestOffsetsOfContinuations(t *testing.T) {
	var tokens []sparrow.Token
	for _, text := range []string{"d", "é", "f", "g"} {
		tokens = append(tokens, sparrow.Token{Text: text, Rank: 1, Top: make([]sample.TokenLogprob, 1)})
	}
	a := &scoreAnswer{columns: columns{spelling: newSpelling(newFake(scoring), false), characters: 3},
		given:  &sparrow.Continuations{Skip: []int{2, 0}, Rest: make([][]int32, 2)},
		scored: [][]sparrow.Token{tokens, tokens[2:]}}
	out, err := a.response(&result{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]int{{5, 6}, {3, 4}} {
		if got := out.(*openai.ScoreResponse).Data[i].Logprobs.TextOffset; !slices.Equal(got, want) {
			t.Errorf("continuation %d: offsets %v, want %v", i, got, want)
		}
	}
}
