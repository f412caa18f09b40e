package eval

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"sparrow/chat"
)

// Exact reports whether a reply equals the item's answer. For an item with choices, it reports whether the most
// probable choice is right.
func Exact(it *Item, r *Reply) bool {
	if r.Logprobs != nil {
		return largest(r.Logprobs) == it.Label
	}
	if !r.Ended {
		return false
	}
	if r.Raw {
		return r.Text == it.Answer
	}
	want, err := expected(it)
	if err != nil || r.Text != want.Content || len(r.Calls) != len(want.ToolCalls) {
		return false
	}
	if it.Thinking() && r.Reasoning != want.Reasoning {
		return false
	}
	for i, c := range r.Calls {
		if c.Name != want.ToolCalls[i].Name || !sameJSON(c.Arguments, want.ToolCalls[i].Arguments) {
			return false
		}
	}
	return true
}

// expected returns the item's answer as a parsed message. Task files contain calls in the format of DeepSeek-V3.1.
func expected(it *Item) (chat.Message, error) {
	return chat.Parse(chat.DeepSeekV31{}.Parser(it.Chat), it.Answer)
}

// Final reports whether a reply contains the item's final value, or its answer if the item has none. For an item with
// choices, it reports whether the choice with the highest log probability per character is right, because long choices
// are less probable.
func Final(it *Item, r *Reply) bool {
	if r.Logprobs != nil {
		each := make([]float64, len(r.Logprobs))
		for i, l := range r.Logprobs {
			each[i] = l / float64(utf8.RuneCountInString(it.Choices[i]))
		}
		return largest(each) == it.Label
	}
	if it.Final == "" {
		return Exact(it, r) || holds(r.String(), strings.Fields(it.Answer))
	}
	if !r.Raw {
		for _, c := range r.Calls {
			if sameJSON(c.Arguments, it.Final) {
				return true
			}
		}
	}
	return holds(r.String(), strings.Fields(it.Final))
}

// largest returns the index of the largest value; of several, the first one.
func largest(v []float64) int {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return best
}

// holds reports whether the words occur in text in this order, none of them as part of a longer word.
func holds(text string, words []string) bool {
	for _, w := range words {
		end := findWord(text, w)
		if end < 0 {
			return false
		}
		text = text[end:]
	}
	return true
}

// findWord returns the end of the first occurrence of w that has no letter or digit next to it, or -1 if there is none.
func findWord(text, w string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], w)
		if i < 0 {
			return -1
		}
		start, end := from+i, from+i+len(w)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		first, _ := utf8.DecodeRuneInString(w)
		last, _ := utf8.DecodeLastRuneInString(w)
		if !(inWord(before) && inWord(first)) && !(inWord(last) && inWord(after)) {
			return end
		}
		from = start + utf8.RuneLen(first)
	}
}

func inWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// sameJSON reports whether two texts are JSON with the same value.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
