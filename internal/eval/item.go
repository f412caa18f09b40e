package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/wire"
)

// Item is one question with its expected answer.
type Item struct {
	Task string // name of the task file without its extensions
	Line int    // line in the file, from 1
	Kind string // kind of the item, as the file states it

	Messages json.RawMessage // conversation, as in the file
	Tools    json.RawMessage // tools, as in the file; nil without tools
	Schema   json.RawMessage // JSON schema that the answer must follow; nil without one
	Chat     chat.Request    // Messages and Tools in the form for an engine

	// Choices, if not empty, are possible continuations of Prompt. The model computes the probability of each; it
	// generates no answer. Messages is then empty.
	Prompt  string
	Choices []string
	Label   int // index of the right choice

	Answer string // complete expected output, or the right choice
	Final  string // words that the output must contain, for Final; empty means those of Answer
	Tokens int    // prompt tokens; 0 if the file does not state them
}

// Thinking reports whether the expected answer begins with reasoning.
func (it *Item) Thinking() bool { return strings.Contains(it.Answer, thinkClose) }

// Where returns the file and line of the item, for messages.
func (it *Item) Where() string { return fmt.Sprintf("%s:%d", it.Task, it.Line) }

// thinkClose ends the reasoning of a reply in every supported chat format.
const thinkClose = "</think>"

// itemFields is a line of a task file.
type itemFields struct {
	Task     string          `json:"task"`
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Schema   json.RawMessage `json:"schema"`
	Answer   *string         `json:"answer"`
	Final    string          `json:"final"`
	Tokens   int             `json:"tokens"`
	Prompt   string          `json:"prompt"`
	Choices  []string        `json:"choices"`
	Label    *int            `json:"label"`
}

// parseItem parses one line. Unknown names are errors, because a misspelt "tools" would otherwise have no effect.
func parseItem(line []byte) (*Item, error) {
	var f itemFields
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s; an item is a JSON object with messages, answer and optionally tools, schema, "+
			"final, task and tokens, such as %s, or with prompt, choices and label, such as %s", itemFault(line, err),
			exampleItem, exampleChoice)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value on the line; want one item")
	}
	if len(f.Choices) > 0 || f.Label != nil || f.Prompt != "" {
		return f.choice()
	}
	if f.Answer == nil || *f.Answer == "" {
		return nil, errors.New("answer is missing or empty; want the complete expected output")
	}
	if f.Tokens < 0 {
		return nil, fmt.Errorf("tokens is %d; want the number of prompt tokens, or omit it", f.Tokens)
	}
	it := &Item{Kind: f.Task, Messages: f.Messages, Tools: f.Tools, Schema: f.Schema, Answer: *f.Answer, Final: f.Final,
		Tokens: f.Tokens}
	if string(f.Tools) == "null" {
		it.Tools = nil
	}
	if string(f.Schema) == "null" {
		it.Schema = nil
	}
	return it, it.read()
}

// exampleItem is a minimal line, for error messages.
const exampleItem = `{"messages": [{"role": "user", "content": "What is 2 + 3?"}], "answer": "5"}`

// exampleChoice is a minimal line with choices, for error messages.
const exampleChoice = `{"prompt": "The sky is", "choices": [" blue", " a door"], "label": 0}`

// choice parses a line with choices.
func (f *itemFields) choice() (*Item, error) {
	switch {
	case f.Messages != nil || f.Tools != nil || f.Schema != nil || f.Answer != nil || f.Final != "":
		return nil, fmt.Errorf("the item has both a conversation and choices; want messages and answer, or prompt, "+
			"choices and label, such as %s", exampleChoice)
	case f.Prompt == "":
		return nil, errors.New("prompt is missing or empty; want the text that the choices follow")
	case len(f.Choices) < 2:
		return nil, fmt.Errorf("choices has %d texts, want two or more that may follow the prompt, with the space "+
			"before them", len(f.Choices))
	case f.Label == nil || *f.Label < 0 || *f.Label >= len(f.Choices):
		return nil, fmt.Errorf("label: want the number of the right choice, 0 to %d", len(f.Choices)-1)
	}
	for i, c := range f.Choices {
		if c == "" {
			return nil, fmt.Errorf("choices[%d] is empty", i)
		}
	}
	return &Item{Kind: f.Task, Prompt: f.Prompt, Choices: f.Choices, Label: *f.Label, Answer: f.Choices[*f.Label],
		Tokens: max(f.Tokens, 0)}, nil
}

// itemFault returns a decoder's error as a message about the line of the file.
func itemFault(line []byte, err error) string {
	const most = 40 // maximum number of quoted characters
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
		return fmt.Sprintf("byte %d of %q is not JSON", syntax.Offset, string(text))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// wireItem is a chat completion request with the fields that an item sets.
type wireItem struct {
	Model    string          `json:"model"`
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools,omitempty"`
}

// read validates messages and tools as the HTTP interface does, and sets Chat.
func (it *Item) read() error {
	if len(it.Messages) == 0 {
		return errors.New("messages is missing")
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
	it.Chat = chat.Request{AddGenerationPrompt: true, Thinking: &thinking, ResponseFormat: it.Schema}
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
