package openai

import (
	"fmt"

	"sparrow/api/wire"
	"sparrow/internal/jsonscan"
)

// The types of items in a conversation of the Responses API.
const (
	ItemMessage   = "message"
	ItemReasoning = "reasoning"
	ItemCall      = "function_call"
	ItemResult    = "function_call_output"
	ItemReference = "item_reference" // of a stored item, by its id
)

// The states of an item and of a response.
const (
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusIncomplete = "incomplete"
	StatusFailed     = "failed"
)

// Item is one piece of a conversation, in a request or in a response. Which fields it has depends on its type.
type Item struct {
	Type   string
	ID     string // given by the server
	Status string

	Role string // of a message
	// Content is the text of a message, of a reasoning item or of a call's result.
	Content  Content
	Logprobs []TokenLogprob // of a message, when asked for

	CallID    string // of a call and of its result
	Name      string // of a call: the function
	Arguments string // of a call: JSON as text
}

// wireItem is an item on the wire.
type wireItem struct {
	Type      string    `json:"type"`
	ID        string    `json:"id,omitempty"`
	Status    string    `json:"status,omitempty"`
	Role      string    `json:"role,omitempty"`
	Summary   *[]string `json:"summary,omitempty"`
	Content   *[]Part   `json:"content,omitempty"`
	CallID    string    `json:"call_id,omitempty"`
	Name      string    `json:"name,omitempty"`
	Arguments *string   `json:"arguments,omitempty"`
	Output    *string   `json:"output,omitempty"`
}

// Part is one piece of the content of an item in a response.
type Part struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Annotations *[]struct{}     `json:"annotations,omitempty"` // always empty, and there for output_text only
	Logprobs    *[]TokenLogprob `json:"logprobs,omitempty"`    // likewise; empty unless asked for
}

// The types of parts.
const (
	partInput     = "input_text"
	partOutput    = "output_text"
	partReasoning = "reasoning_text"
)

// OutputText is a part of a message of the model.
func OutputText(text string, logprobs []TokenLogprob) Part {
	if logprobs == nil {
		logprobs = []TokenLogprob{}
	}
	return Part{Type: partOutput, Text: text, Annotations: &[]struct{}{}, Logprobs: &logprobs}
}

// ReasoningText is a part of a reasoning item.
func ReasoningText(text string) Part { return Part{Type: partReasoning, Text: text} }

// MarshalJSON writes the fields that the item's type has.
func (i Item) MarshalJSON() ([]byte, error) {
	out := wireItem{Type: i.Type, ID: i.ID, Status: i.Status}
	switch i.Type {
	case ItemMessage:
		parts := []Part{}
		for _, text := range i.Content {
			if i.Role == RoleAssistant {
				parts = append(parts, OutputText(text, i.Logprobs))
			} else {
				parts = append(parts, Part{Type: partInput, Text: text})
			}
		}
		out.Role, out.Content = i.Role, &parts
	case ItemReasoning:
		parts := []Part{}
		for _, text := range i.Content {
			parts = append(parts, ReasoningText(text))
		}
		out.Summary, out.Content = &[]string{}, &parts
	case ItemCall:
		out.CallID, out.Name, out.Arguments = i.CallID, i.Name, &i.Arguments
	case ItemResult:
		text := i.Content.Text()
		out.CallID, out.Output = i.CallID, &text
	}
	return wire.Marshal(out)
}

// itemReader is an item in the making; the texts of other types are told apart once the type is known.
type itemReader struct {
	Item
	summary Content
	output  Content
}

var itemFields = wire.Fields[itemReader]{
	"type":      wire.TextField(func(i *itemReader) *string { return &i.Type }),
	"id":        wire.TextField(func(i *itemReader) *string { return &i.ID }),
	"role":      wire.TextField(func(i *itemReader) *string { return &i.Role }),
	"call_id":   wire.TextField(func(i *itemReader) *string { return &i.CallID }),
	"name":      wire.TextField(func(i *itemReader) *string { return &i.Name }),
	"arguments": wire.TextField(func(i *itemReader) *string { return &i.Arguments }),
	"content":   {Read: func(c *wire.Reader, i *itemReader) { i.Content = readTexts(c) }},
	"summary":   {Read: func(c *wire.Reader, i *itemReader) { i.summary = readTexts(c) }},
	"output":    {Read: func(c *wire.Reader, i *itemReader) { i.output = readTexts(c) }},

	// What a replayed item says beside its text.
	"status":            {Read: func(c *wire.Reader, _ *itemReader) { c.Skip() }},
	"phase":             {Read: func(c *wire.Reader, _ *itemReader) { c.Skip() }},
	"encrypted_content": wire.IgnoreAny[itemReader](),
}

// readInput takes a string, which is a message of the user, or an array of items.
func readInput(c *wire.Reader) []Item {
	switch c.Shape() {
	case jsonscan.String:
		return []Item{{Type: ItemMessage, Role: RoleUser, Content: Content{c.Text()}}}
	case jsonscan.Array:
		return wire.ReadList(c, MaxMessages, "items", func() (Item, bool) {
			var i itemReader
			wire.ReadObject(c, &i, itemFields)
			i.settle()
			return i.Item, true
		})
	}
	c.WrongShape("a string or an array of items")
	return nil
}

// settle gives an item the type that it leaves out, and its text.
func (i *itemReader) settle() {
	if i.Type == "" {
		i.Type = ItemMessage
		if i.Role == "" && i.Content == nil && i.ID != "" {
			i.Type = ItemReference
		}
	}
	switch {
	case i.Type == ItemResult:
		i.Content = i.output
	case i.Type == ItemReasoning && len(i.Content) == 0:
		i.Content = i.summary
	}
}

// readTexts takes a string or an array of parts that are text.
func readTexts(c *wire.Reader) Content {
	switch c.Shape() {
	case jsonscan.String:
		return Content{c.Text()}
	case jsonscan.Array:
		return wire.ReadList(c, MaxParts, "content parts", func() (string, bool) { return readTextPart(c) })
	}
	c.WrongShape("a string or an array of text parts")
	return nil
}

var textPartFields = wire.Fields[partReader]{
	"type": wire.TextField(func(p *partReader) *string { return &p.kind }),
	"text": {Read: func(c *wire.Reader, p *partReader) { wire.SetPointer(&p.text, c.Str) }},

	// What a replayed part says beside its text, and the members of parts whose type is refused.
	"annotations":             {Read: func(c *wire.Reader, _ *partReader) { c.Skip() }},
	"logprobs":                {Read: func(c *wire.Reader, _ *partReader) { c.Skip() }},
	"parsed":                  wire.IgnoreAny[partReader](),
	"prompt_cache_breakpoint": wire.IgnoreAny[partReader](),
	"cache_control":           wire.IgnoreAny[partReader](),
	"refusal":                 otherPart,
	"detail":                  otherPart,
	"image_url":               otherPart,
	"file_id":                 otherPart,
	"file_url":                otherPart,
	"file_data":               otherPart,
	"filename":                otherPart,
	"input_audio":             otherPart,
}

func readTextPart(c *wire.Reader) (string, bool) {
	var part partReader
	if !c.Clean(func() { wire.ReadObject(c, &part, textPartFields) }) {
		return "", false
	}
	at := c.Param()
	switch part.kind {
	case partInput, partOutput, partReasoning, "summary_text", "text":
		if part.text == nil {
			c.Add(wire.CodeMissing, at+".text", "required")
			return "", false
		}
		return *part.text, true
	case "":
		c.Add(wire.CodeMissing, at+".type", "required: %s or %s", partInput, partOutput)
	default:
		c.Add(wire.CodeUnsupportedValue, at+".type",
			"%q is not supported; the models read text, so send parts of type %s or %s", jsonscan.Clip(part.kind),
			partInput, partOutput)
	}
	return "", false
}

// check looks at one item of a request.
func (i *Item) check(p *wire.Problems, at string) {
	missing := func(field, value string) {
		if value == "" {
			p.AddNew(wire.CodeMissing, at+"."+field, "required for type %s", i.Type)
		}
	}
	switch i.Type {
	case ItemMessage:
		switch i.Role {
		case RoleSystem, RoleDeveloper, RoleUser, RoleAssistant:
		case "":
			p.AddNew(wire.CodeMissing, at+".role", "required: system, developer, user or assistant")
		default:
			p.AddNew(wire.CodeInvalidValue, at+".role", "%q is not supported; use system, developer, user or assistant",
				jsonscan.Clip(i.Role))
		}
		if i.Content == nil {
			p.AddNew(wire.CodeMissing, at+".content", "required for type %s", i.Type)
		}
	case ItemReasoning:
	case ItemCall:
		missing("call_id", i.CallID)
		missing("name", i.Name)
	case ItemResult:
		missing("call_id", i.CallID)
		if i.Content == nil {
			p.AddNew(wire.CodeMissing, at+".output", "required for type %s", i.Type)
		}
	case ItemReference:
		missing("id", i.ID)
	default:
		p.AddNew(wire.CodeUnsupportedValue, at+".type", "%q is not supported; use %s, %s, %s, %s or %s",
			jsonscan.Clip(i.Type), ItemMessage, ItemReasoning, ItemCall, ItemResult, ItemReference)
	}
}

// checkItems looks at all items of a request.
func checkItems(p *wire.Problems, items []Item) {
	if len(items) == 0 {
		p.AddNew(wire.CodeMissing, "input", "required; send a string or at least one item")
		return
	}
	if wire.WantAtMost(p, "input", len(items), MaxMessages, "items") {
		for i := range items {
			items[i].check(p, fmt.Sprintf("input[%d]", i))
		}
	}
}

// Messages are items as the messages of a chat: reasoning, text and calls of the model that follow each other are one
// message.
func Messages(items []Item) []Message {
	var list []Message
	open := false // the last message is the model's and may grow
	said := func(fresh bool) *Message {
		if !open || fresh {
			list = append(list, Message{Role: RoleAssistant})
			open = true
		}
		return &list[len(list)-1]
	}
	last := func() Message {
		if open {
			return list[len(list)-1]
		}
		return Message{}
	}
	for i := range items {
		switch it := &items[i]; {
		case it.Type == ItemReasoning:
			m := last()
			more := m.Content != nil || m.ToolCalls != nil || m.ReasoningContent != ""
			said(more).ReasoningContent = it.Content.Text()
		case it.Type == ItemCall:
			m := said(false)
			m.ToolCalls = append(m.ToolCalls, ToolCall{ID: it.CallID, Type: typeFunction,
				Function: FunctionCall{Name: it.Name, Arguments: it.Arguments}})
		case it.Type == ItemResult:
			list = append(list, Message{Role: RoleTool, ToolCallID: it.CallID, Content: it.Content})
			open = false
		case it.Role == RoleAssistant:
			m := last()
			said(m.Content != nil || m.ToolCalls != nil).Content = it.Content
		default:
			list = append(list, Message{Role: it.Role, Content: it.Content})
			open = false
		}
	}
	return list
}
