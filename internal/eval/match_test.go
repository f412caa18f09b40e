package eval

import (
	"testing"

	"sparrow/chat"
)

const callAnswer = `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_user<｜tool▁sep｜>{"user_id": 5381}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`

func item(t *testing.T, answer, final string) *Item {
	t.Helper()
	it := &Item{Task: "t", Line: 1, Answer: answer, Final: final,
		Messages: []byte(`[{"role": "user", "content": "?"}]`),
		Tools:    []byte(`[{"type": "function", "function": {"name": "get_user"}}]`)}
	if err := it.read(); err != nil {
		t.Fatal(err)
	}
	return it
}

func TestExact(t *testing.T) {
	call := func(name, arguments string) []chat.Call {
		return []chat.Call{{ID: "c", Name: name, Arguments: arguments}}
	}
	for name, c := range map[string]struct {
		answer string
		reply  Reply
		want   bool
	}{
		"an engine's text":              {"4", Reply{Raw: true, Text: "4", Ended: true}, true},
		"an engine's text with a blank": {"4", Reply{Raw: true, Text: "4 ", Ended: true}, false},
		"an engine cut off":             {"4", Reply{Raw: true, Text: "4"}, false},
		"an engine's call":              {callAnswer, Reply{Raw: true, Text: callAnswer, Ended: true}, true},
		"an engine's call in other words": {callAnswer,
			Reply{Raw: true, Text: callAnswer[:len(callAnswer)-3], Ended: true}, false},
		"a server's text":       {"4", Reply{Text: "4", Ended: true}, true},
		"a server's wrong text": {"4", Reply{Text: "5", Ended: true}, false},
		"a server cut off":      {"4", Reply{Text: "4"}, false},
		"a server's call": {callAnswer,
			Reply{Calls: call("get_user", `{"user_id":5381}`), Ended: true}, true},
		"a server's call of another tool": {callAnswer,
			Reply{Calls: call("get_time", `{"user_id":5381}`), Ended: true}, false},
		"a server's call with another value": {callAnswer,
			Reply{Calls: call("get_user", `{"user_id":5382}`), Ended: true}, false},
		"a server's call that is not JSON": {callAnswer, Reply{Calls: call("get_user", `{"user_id":`), Ended: true},
			false},
		"a server's call with text": {callAnswer,
			Reply{Text: "Sure!", Calls: call("get_user", `{"user_id":5381}`), Ended: true}, false},
		"no call where one is expected": {callAnswer, Reply{Ended: true}, false},
		"a call where none is expected": {"4", Reply{Text: "4", Calls: call("get_user", "{}"), Ended: true},
			false},
		"reasoning": {"Two and two.</think>4",
			Reply{Reasoning: "Two and two.", Text: "4", Ended: true}, true},
		"other reasoning": {"Two and two.</think>4", Reply{Reasoning: "Hm.", Text: "4", Ended: true},
			false},
		"unexpected reasoning": {"4", Reply{Reasoning: "Hm.", Text: "4", Ended: true}, true},
	} {
		if got := Exact(item(t, c.answer, ""), &c.reply); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestFinal(t *testing.T) {
	for name, c := range map[string]struct {
		final string
		reply Reply
		want  bool
	}{
		"the value in a sentence":       {"154", Reply{Text: "22 * 7 = 154\n#### 154"}, true},
		"the value cut off":             {"154", Reply{Raw: true, Text: "#### 154"}, true},
		"a longer number":               {"154", Reply{Text: "#### 1540"}, false},
		"a longer word":                 {"owl", Reply{Text: "an owlet and a fowl"}, false},
		"a longer word, then the value": {"owl", Reply{Text: "an owlet and an owl"}, true},
		"two values in order":           {"3640 owl", Reply{Text: "The code is 3640. The pet is owl."}, true},
		"two values the other way":      {"3640 owl", Reply{Text: "The pet is owl. The code is 3640."}, false},
		"one of two values":             {"3640 owl", Reply{Text: "The code is 3640."}, false},
		"one occurrence for two words":  {"7 7", Reply{Text: "7"}, false},
		"a raw call":                    {`{"user_id": 5381}`, Reply{Raw: true, Text: callAnswer}, true},
		"a server's call": {`{"user_id": 5381}`,
			Reply{Calls: []chat.Call{{Name: "x", Arguments: `{"user_id":5381}`}}}, true},
		"no value, another answer":      {"", Reply{Text: "y"}, false},
		"no value, the answer and more": {"", Reply{Text: "x, of course"}, true},
		"letters beyond ASCII":          {"Ärger", Reply{Text: "ÄÄrger"}, false},
	} {
		if got := Final(item(t, "x", c.final), &c.reply); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
