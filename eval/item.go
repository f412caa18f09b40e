package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sparrow/api/openai"
	"sparrow/api/wire"
	"sparrow/chat"
)

// Item is one question with its expected answer.
type Item struct {
	Task string // the file's name without its endings
	Line int    // in that file, from 1
	Kind string // what the file calls it

	Messages json.RawMessage // as in the file
	Tools    json.RawMessage // as in the file; nil without tools
	Chat     chat.Request    // both of them, as an engine reads them

	Answer string // the complete expected output
	Final  string // the value inside it; may be empty
	Tokens int    // of the prompt; 0 where the file does not say
}

// Thinking reports whether the answer starts inside a reasoning block.
func (it *Item) Thinking() bool { return strings.Contains(it.Answer, thinkClose) }

// Where names the item in messages.
func (it *Item) Where() string { return fmt.Sprintf("%s:%d", it.Task, it.Line) }

// thinkClose ends the reasoning of a reply in every supported chat format.
const thinkClose = "</think>"

// itemFields is a line of a task file.
type itemFields struct {
	Task     string          `json:"task"`
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Answer   *string         `json:"answer"`
	Final    string          `json:"final"`
	Tokens   int             `json:"tokens"`
}

// parseItem reads one line. Unknown names are refused: a misspelt "tools" would silently change what is measured.
func parseItem(line []byte) (*Item, error) {
	var f itemFields
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s; an item is a JSON object with messages, answer and optionally tools, final, "+
			"task and tokens, such as %s", itemFault(line, err), exampleItem)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value on the line; want one item")
	}
	if f.Answer == nil || *f.Answer == "" {
		return nil, errors.New("answer: is missing or empty; want the complete expected output")
	}
	if f.Tokens < 0 {
		return nil, fmt.Errorf("tokens: is %d, want the tokens of the prompt or none", f.Tokens)
	}
	it := &Item{Kind: f.Task, Messages: f.Messages, Tools: f.Tools, Answer: *f.Answer, Final: f.Final, Tokens: f.Tokens}
	if string(f.Tools) == "null" {
		it.Tools = nil
	}
	return it, it.read()
}

// exampleItem is the least a line can hold.
const exampleItem = `{"messages": [{"role": "user", "content": "What is 2 + 3?"}], "answer": "5"}`

// itemFault describes a decoder's error in the terms of the file.
func itemFault(line []byte, err error) string {
	const most = 40 // characters that are quoted
	var typed *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typed) && typed.Field != "":
		return fmt.Sprintf("%s: is a JSON %s", typed.Field, typed.Value)
	case errors.As(err, &typed):
		return "a JSON " + typed.Value + " instead of an object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too early"
	case errors.As(err, &syntax):
		text := []rune(strings.TrimSpace(string(line)))
		if len(text) > most {
			text = append(text[:most:most], []rune("...")...)
		}
		return fmt.Sprintf("no JSON at byte %d of %q", syntax.Offset, string(text))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// wireItem is the part of a chat completion that an item fixes.
type wireItem struct {
	Model    string          `json:"model"`
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools,omitempty"`
}

// read checks messages and tools by the rules of the HTTP interface and fills Chat.
func (it *Item) read() error {
	if len(it.Messages) == 0 {
		return errors.New("messages: is missing")
	}
	body, err := wire.Marshal(wireItem{"task", it.Messages, it.Tools})
	if err != nil {
		return err
	}
	r, bad := openai.DecodeChat(&wire.Decoder{Strict: true}, body)
	if bad != nil {
		return bad
	}
	thinking := it.Thinking()
	it.Chat = chat.Request{AddGenerationPrompt: true, Thinking: &thinking}
	for i := range r.Messages {
		m := &r.Messages[i]
		turn := chat.Message{Role: chat.Role(m.Role), Content: m.Content.Text(), Reasoning: m.ReasoningContent,
			ToolCallID: m.ToolCallID, Name: m.Name}
		for _, c := range m.ToolCalls {
			turn.ToolCalls = append(turn.ToolCalls,
				chat.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		it.Chat.Messages = append(it.Chat.Messages, turn)
	}
	for _, t := range r.Tools {
		strict := t.Function.Strict != nil && *t.Function.Strict
		it.Chat.Tools = append(it.Chat.Tools,
			chat.Tool{Name: t.Function.Name, Description: t.Function.Description, Parameters: t.Function.Parameters,
				Strict: strict})
	}
	return nil
}
