package chat

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// sum returns a short hash of the JSON of values.
func sum(t *testing.T, values ...any) string {
	t.Helper()
	h := fnv.New32a()
	if err := json.NewEncoder(h).Encode(values); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// Replies with calls that are cut off, lack a piece or have one twice are parsed to the messages of the golden table,
// also if they come in small pieces: the lengths of reasoning, content and malformed text, the calls, and a hash of
// all.
func TestTableOfDamagedReplies(t *testing.T) {
	d := rand.New(rand.NewPCG(3, 1))
	var lines []string
	for _, c := range parserCases {
		damaged := []string{c.text}
		for i := 0; i < 6 && len(c.text) > 0; i++ {
			at := d.IntN(len(c.text))
			end := min(len(c.text), at+1+d.IntN(20))
			damaged = append(damaged, c.text[:at], c.text[:at]+c.text[end:], c.text[:end]+c.text[at:])
		}
		line := fmt.Sprintf("%s, %s:", c.family, c.name)
		for _, text := range damaged {
			var pieces []string
			for at := 0; at < len(text); {
				n := min(1+d.IntN(9), len(text)-at)
				pieces = append(pieces, text[at:at+n])
				at += n
			}
			m, malformed, err := feed(c.parser(), pieces)
			line += fmt.Sprintf(" %d+%d-%d", len(m.Reasoning), len(m.Content), len(malformed))
			for _, call := range m.ToolCalls {
				line += fmt.Sprintf(" %s(%d)", call.Name, len(call.Arguments))
			}
			line += " " + sum(t, m, malformed, err != nil) + ";"
		}
		lines = append(lines, line)
	}
	table.Check(t, "replies.txt", lines)
}

// drawConversation returns a conversation in which most turns are allowed.
func drawConversation(d *rand.Rand) Request {
	text := func() string { return []string{"", "hi", "two\n\nlines ", "<think>a</think>b", "é\"{}"}[d.IntN(5)] }
	rarely := func() bool { return d.IntN(4) == 0 }
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`)
	tools := []Tool{{Name: "f", Description: "does f", Parameters: schema}, {Name: "g", Strict: true},
		{Name: "h", Deferred: true}}
	req := Request{AddGenerationPrompt: !rarely(), ControlTokens: rarely(),
		Effort: []string{"low", "high", "max", "odd", ""}[min(d.IntN(12), 4)]}
	if d.IntN(2) == 0 {
		req.Tools = tools[:1+d.IntN(3)]
		req.ToolChoice = []ToolChoice{{}, {Mode: ChoiceNone}, {Mode: ChoiceRequired},
			{Mode: ChoiceFunction, Name: "g"}}[d.IntN(4)]
	}
	if n := d.IntN(4); n < 2 {
		thinking := n == 0
		req.Thinking = &thinking
	}
	if rarely() {
		req.ResponseFormat = schema
	}
	if rarely() {
		req.Messages = append(req.Messages, Message{Role: System, Content: text()})
	}
	for range 1 + d.IntN(3) {
		user := Message{Role: User, Content: text()}
		if rarely() {
			user.Name = "ann"
		}
		req.Messages = append(req.Messages, user)
		if rarely() {
			system := Message{Role: []Role{System, Developer}[d.IntN(2)], Content: text()}
			if rarely() {
				system.Tools = tools[1:2]
			} else if rarely() {
				system.ResponseFormat = schema
			}
			req.Messages = append(req.Messages, system)
		}
		if d.IntN(3) == 0 {
			continue
		}
		m := Message{Role: Assistant, Content: text(), Reasoning: text()}
		if d.IntN(2) == 0 {
			m.ToolCalls = []Call{{ID: "c1", Name: "f", Arguments: `{"a": "x", "n": [1, 2.5], "b": true}`},
				{ID: "c2", Name: "g", Arguments: `{}`}}[:1+d.IntN(2)]
		}
		req.Messages = append(req.Messages, m)
		for _, call := range m.ToolCalls {
			req.Messages = append(req.Messages, Message{Role: ToolRole, ToolCallID: call.ID, Content: text()})
		}
	}
	if last := req.Messages[len(req.Messages)-1]; last.Role == Assistant && len(last.ToolCalls) == 0 {
		req.AddGenerationPrompt, req.ContinueFinal = false, d.IntN(2) == 0
	}
	return req
}

// Every format writes the prompts of the golden table for drawn conversations, or refuses them with its facts: the
// length and the end of a prompt, and a hash of all of it.
func TestTableOfDrawnConversations(t *testing.T) {
	formats := families(t)
	formats["deepseek-v4 preview"], formats["deepseek-v4.1"] = DeepSeekV4{Preview: true}, DeepSeekV41{}
	formats["kimi"], formats["kimi that thinks"] = Kimi{}, Kimi{Thinks: true}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(formats)) {
		d := rand.New(rand.NewPCG(3, 2))
		for i := range 45 {
			req := drawConversation(d)
			req.Memo = &Memo{}
			var roles []string
			for _, m := range req.Messages {
				roles = append(roles, string(m.Role[:1]))
			}
			line := fmt.Sprintf("%s %d %s:", name, i, strings.Join(roles, ""))
			p, err := formats[name].Render(req)
			if err != nil {
				lines = append(lines, line+" refused "+table.Facts(err.Error()))
				continue
			}
			end := []rune(p.Text)
			lines = append(lines, fmt.Sprintf("%s %d bytes, reasoning %v, %s, ends with %q", line, len(p.Text),
				p.InReasoning, sum(t, p), string(end[max(0, len(end)-40):])))
		}
	}
	table.Check(t, "conversations.txt", lines)
}
