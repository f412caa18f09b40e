package openai

import (
	"fmt"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// The types of items in a conversation of the Responses API.
const (
	ItemMessage   = "message"
	ItemReasoning = "reasoning"
	ItemCall      = "function_call"
	ItemResult    = "function_call_output"
	ItemCustom    = "custom_tool_call"
	ItemAnswer    = "custom_tool_call_output"
	ItemReference = "item_reference" // refers to a stored item by its id
	ItemTools     = "additional_tools"
)

// The states of an item and of a response.
const (
	StatusInProgress = "in_progress"
	StatusCompleted  = "completed"
	StatusIncomplete = "incomplete"
	StatusFailed     = "failed"
)

// Item is one piece of a conversation, in a request or in a response. Its fields depend on its type.
type Item struct {
	Type   string
	ID     string // set by the server
	Status string

	Role string // role of a message
	// Content is the text of a message, of a reasoning item or of a call's result.
	Content  Content
	Summary  bool           // for a reasoning item in a response: its text is in the summary
	Sealed   bool           // for a reasoning item in a response: encrypted_content also contains its text
	Logprobs []TokenLogprob // log probabilities of a message, if requested

	CallID    string // id of a call, in the call and in its result
	Namespace string // namespace of the called tool, or empty
	Name      string // name of the called tool
	Arguments string // arguments of a call as JSON text, or the input of a custom tool

	Tools []ResponseTool // for ItemTools: tools in addition to those of the request
}

// wireItem is an item on the wire.
type wireItem struct {
	Type      string  `json:"type"`
	ID        string  `json:"id,omitempty"`
	Status    string  `json:"status,omitempty"`
	Role      string  `json:"role,omitempty"`
	Summary   *[]Part `json:"summary,omitempty"`
	Content   *[]Part `json:"content,omitempty"`
	Encrypted string  `json:"encrypted_content,omitempty"`
	CallID    string  `json:"call_id,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Input     *string `json:"input,omitempty"`
	Output    *string `json:"output,omitempty"`

	Tools []ResponseTool `json:"tools,omitempty"`
}

// Part is one piece of the content of an item in a response.
type Part struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Annotations *[]struct{}     `json:"annotations,omitempty"` // always empty; only for output_text
	Logprobs    *[]TokenLogprob `json:"logprobs,omitempty"`    // only for output_text; empty unless requested
}

// The types of parts.
const (
	partInput     = "input_text"
	partOutput    = "output_text"
	partReasoning = "reasoning_text"
	partSummary   = "summary_text"
)

// OutputText returns a part of a message of the model.
func OutputText(text string, logprobs []TokenLogprob) Part {
	if logprobs == nil {
		logprobs = []TokenLogprob{}
	}
	return Part{Type: partOutput, Text: text, Annotations: &[]struct{}{}, Logprobs: &logprobs}
}

// ReasoningText returns a part of a reasoning item.
func ReasoningText(text string) Part { return Part{Type: partReasoning, Text: text} }

// SummaryText returns a part of the summary of a reasoning item.
func SummaryText(text string) Part { return Part{Type: partSummary, Text: text} }

// MarshalJSON writes the fields of the item's type.
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
		i.marshalReasoning(&out)
	case ItemCall:
		out.CallID, out.Namespace, out.Name, out.Arguments = i.CallID, i.Namespace, i.Name, &i.Arguments
	case ItemCustom:
		out.CallID, out.Namespace, out.Name, out.Input = i.CallID, i.Namespace, i.Name, &i.Arguments
	case ItemTools:
		out.Role, out.Tools = i.Role, i.Tools
	case ItemResult, ItemAnswer:
		text := i.Content.Text()
		out.CallID, out.Output = i.CallID, &text
	}
	return wire.Marshal(out)
}

func (i *Item) marshalReasoning(out *wireItem) {
	parts := []Part{}
	for _, text := range i.Content {
		if i.Summary {
			parts = append(parts, SummaryText(text))
		} else {
			parts = append(parts, ReasoningText(text))
		}
	}
	if i.Sealed && len(parts) > 0 {
		out.Encrypted = Seal(i.Content.Text())
	}
	if out.Summary = &parts; !i.Summary {
		out.Summary, out.Content = &[]Part{}, &parts
	}
}

// itemReader is an item that is being read. settle assigns the texts to Item once the type is known.
type itemReader struct {
	Item
	summary Content
	output  Content
	sealed  string
	input   string
}

var itemFields = wire.Fields[itemReader]{
	"type":      wire.TextField(func(i *itemReader) *string { return &i.Type }),
	"id":        wire.TextField(func(i *itemReader) *string { return &i.ID }),
	"role":      wire.TextField(func(i *itemReader) *string { return &i.Role }),
	"call_id":   wire.TextField(func(i *itemReader) *string { return &i.CallID }),
	"name":      wire.TextField(func(i *itemReader) *string { return &i.Name }),
	"namespace": wire.TextField(func(i *itemReader) *string { return &i.Namespace }),
	"input":     wire.TextField(func(i *itemReader) *string { return &i.input }),
	"tools":     {Read: func(c *wire.Reader, i *itemReader) { i.Tools = readResponseTools(c) }},
	"arguments": wire.TextField(func(i *itemReader) *string { return &i.Arguments }),
	"content":   {Read: func(c *wire.Reader, i *itemReader) { i.Content = readTexts(c) }},
	"summary":   {Read: func(c *wire.Reader, i *itemReader) { i.summary = readTexts(c) }},
	"output":    {Read: func(c *wire.Reader, i *itemReader) { i.output = readTexts(c) }},

	// Fields of an item of an earlier response that do not affect the prompt.
	"status":            {Read: func(c *wire.Reader, _ *itemReader) { c.Skip() }},
	"phase":             {Read: func(c *wire.Reader, _ *itemReader) { c.Skip() }},
	"encrypted_content": {Read: readSealed},
}

// readInput reads a string, which is a message of the user, or an array of items.
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

// settle sets the type if the request omits it, and moves the texts that were read to Content or Arguments.
func (i *itemReader) settle() {
	if i.Type == "" {
		i.Type = ItemMessage
		if i.Role == "" && i.Content == nil && i.ID != "" {
			i.Type = ItemReference
		}
	}
	switch {
	case i.Type == ItemResult, i.Type == ItemAnswer:
		i.Content = i.output
	case i.Type == ItemCustom:
		i.Arguments = i.input
	case i.Type == ItemReasoning && i.sealed != "":
		i.Content = Content{i.sealed}
	case i.Type == ItemReasoning && len(i.Content) == 0:
		i.Content = i.summary
	}
}

// readSealed decodes the reasoning in encrypted_content if [Seal] wrote it. Data of other servers is ignored.
func readSealed(c *wire.Reader, i *itemReader) {
	text, ok := c.Str()
	if !ok {
		return
	}
	if i.sealed, ok = Unseal(text); !ok {
		c.Note()
	}
}

// readTexts reads a string or an array of text parts.
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

	// Fields of a part of an earlier response that do not affect the prompt, and fields of refused types.
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
	case partInput, partOutput, partReasoning, partSummary, "text":
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

// check validates one item of a request at path at.
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
	case ItemReasoning, ItemTools:
	case ItemCall, ItemCustom:
		missing("call_id", i.CallID)
		missing("name", i.Name)
	case ItemResult, ItemAnswer:
		missing("call_id", i.CallID)
		if i.Content == nil {
			p.AddNew(wire.CodeMissing, at+".output", "required for type %s", i.Type)
		}
	case ItemReference:
		missing("id", i.ID)
	default:
		p.AddNew(wire.CodeUnsupportedValue, at+".type", "%q is not supported; use %s, %s, %s, %s, %s, %s, %s or %s",
			jsonscan.Clip(i.Type), ItemMessage, ItemReasoning, ItemCall, ItemResult, ItemCustom, ItemAnswer,
			ItemTools, ItemReference)
	}
}

// checkItems checks all items of a request.
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

// Messages converts items to the messages of a chat. Consecutive reasoning, text and calls of the model become one
// message.
func Messages(items []Item) []Message {
	var list []Message
	open := false // whether the last message is the model's, so that the next item is added to it
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
		case it.Type == ItemTools:
			if late(items, i) {
				list = append(list, Message{Role: RoleSystem, Content: declarations(it.Tools)})
				open = false
			}
		case it.Type == ItemReasoning:
			m := last()
			more := m.Content != nil || m.ToolCalls != nil || m.ReasoningContent != ""
			said(more).ReasoningContent = it.Content.Text()
		case it.Type == ItemCall, it.Type == ItemCustom:
			m := said(false)
			m.ToolCalls = append(m.ToolCalls, it.call())
		case it.Type == ItemResult, it.Type == ItemAnswer:
			list = append(list, Message{Role: RoleTool, ToolCallID: it.CallID, Content: it.Content})
			open = false
		case it.Role == RoleAssistant:
			m := last()
			said(m.Content != nil || m.ToolCalls != nil).Content = it.Content
		default:
			role := it.Role
			if role == RoleDeveloper {
				// This interface calls system messages developer messages. Some models distinguish the two roles.
				role = RoleSystem
			}
			list = append(list, Message{Role: role, Content: it.Content})
			open = false
		}
	}
	return list
}

// call returns a call as a tool call of a chat.
func (i *Item) call() ToolCall {
	t := ToolCall{ID: i.CallID, Type: typeFunction,
		Function: FunctionCall{Name: FlatName(i.Namespace, i.Name), Arguments: i.Arguments}}
	if i.Type == ItemCustom {
		t.Type, t.Function.Arguments = TypeCustom, CustomArguments(i.Arguments)
	}
	return t
}
