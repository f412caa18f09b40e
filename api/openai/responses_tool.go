package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// ResponseTool is a tool of /v1/responses: a function, a custom tool, a namespace of such tools, or a hosted tool.
type ResponseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"` // parameters of a function
	Strict      *bool           `json:"strict"`     // whether a function's arguments must follow its schema
	Format      *ToolFormat     `json:"-"`          // required syntax of a custom tool's input
	Tools       []ResponseTool  `json:"-"`          // tools of a namespace

	Sent json.RawMessage `json:"-"` // JSON text of the tool as sent, if the tool is not a function
}

// MarshalJSON writes a tool as it is repeated in a response.
func (t ResponseTool) MarshalJSON() ([]byte, error) {
	if t.Sent != nil {
		return wire.Marshal(t.Sent)
	}
	type function ResponseTool
	return wire.Marshal(function(t))
}

var responseToolFields = wire.Fields[ResponseTool]{
	"type":        wire.TextField(func(t *ResponseTool) *string { return &t.Type }),
	"name":        wire.TextField(func(t *ResponseTool) *string { return &t.Name }),
	"description": wire.TextField(func(t *ResponseTool) *string { return &t.Description }),
	"strict":      wire.OptionalBool(func(t *ResponseTool) **bool { return &t.Strict }),
	"parameters":  {Read: func(c *wire.Reader, t *ResponseTool) { t.Parameters = readSchema(c) }},
	"format": {Read: func(c *wire.Reader, t *ResponseTool) {
		t.Format = &ToolFormat{}
		wire.ReadObject(c, t.Format, toolFormatFields)
	}},
	// All tools are listed in the prompt, because deferred tools cannot be searched.
	"defer_loading": wire.IgnoreAs[ResponseTool](jsonscan.Bool),
	"output_schema": wire.IgnoreAny[ResponseTool](),
}

// namespaceFields holds the fields of a tool that may be a namespace. A namespace contains no namespaces.
var namespaceFields = wire.Join(responseToolFields, wire.Fields[ResponseTool]{
	"tools": {Read: func(c *wire.Reader, t *ResponseTool) { t.Tools = readToolList(c, responseToolFields) }},
})

func readResponseTools(c *wire.Reader) []ResponseTool { return readToolList(c, namespaceFields) }

// readToolList reads tools. For hosted tools only the type is kept.
func readToolList(c *wire.Reader, known wire.Fields[ResponseTool]) []ResponseTool {
	return wire.ReadList(c, MaxTools, "tools", func() (t ResponseTool, ok bool) {
		kind := c.TextMember("type")
		if Hosted(kind) {
			return ResponseTool{Type: kind, Sent: c.Raw()}, true
		}
		if kind == TypeCustom || kind == typeNamespace {
			t.Sent = c.Peek()
		}
		if kind == typeNamespace {
			wire.ReadObject(c, &t, known)
		} else { // only a namespace contains tools
			wire.ReadObject(c, &t, responseToolFields)
		}
		return t, true
	})
}

// toolList returns all tools of a request and of the items of its conversation, including the tools inside namespaces.
// places are their paths in the request. Tools inside the conversation are deferred: the prompt shows them at their
// place.
func (r *ResponsesRequest) toolList(items []Item) (list []Tool, places []string) {
	add := func(tools []ResponseTool, at string, deferred bool) {
		more, where := flatten(tools, at)
		for i := range more {
			more[i].Deferred = deferred
		}
		list, places = append(list, more...), append(places, where...)
	}
	add(r.Tools, "tools", false)
	for i := range items {
		if items[i].Type == ItemTools {
			add(items[i].Tools, fmt.Sprintf("input[%d].tools", i), late(items, i))
		}
	}
	return list, places
}

// late reports whether an item other than ItemTools comes before items[i].
func late(items []Item, i int) bool {
	return slices.ContainsFunc(items[:i], func(it Item) bool { return it.Type != ItemTools })
}

// flatten replaces namespaces in a list by their tools; at is the path of the list.
func flatten(tools []ResponseTool, at string) (list []Tool, places []string) {
	add := func(t *ResponseTool, namespace, at string) {
		list = append(list, Tool{Type: t.Type, Namespace: namespace, Format: t.Format, Function: Function{Name: t.Name,
			Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}})
		places = append(places, at)
	}
	for i := range tools {
		t, at := &tools[i], fmt.Sprintf("%s[%d]", at, i)
		if t.Type != typeNamespace {
			add(t, "", at)
			continue
		}
		for j := range t.Tools {
			add(&t.Tools[j], t.Name, fmt.Sprintf("%s.tools[%d]", at, j))
		}
	}
	return list, places
}

// declarations returns the declarations of tools for the prompt, one per line.
func declarations(tools []ResponseTool) Content {
	var lines []string
	list, _ := flatten(tools, "")
	for i := range list {
		if t := &list[i]; !Hosted(t.Type) {
			lines = append(lines, t.Declaration())
		}
	}
	return Content{strings.Join(lines, "\n")}
}

func (r *ResponsesRequest) checkTools(p *wire.Problems) {
	list, places := r.toolList(r.Input)
	for i := range r.Tools {
		t := &r.Tools[i]
		if t.Type == typeNamespace {
			checkName(p, fmt.Sprintf("tools[%d].name", i), t.Name)
		}
	}
	if checkToolList(p, ".name", list, func(i int) string { return places[i] }) {
		r.AsChat(r.Input).checkToolChoice(p)
	}
}

// readResponseChoice reads a mode or an object that names a tool, in which the name is not inside an inner object as in
// chat completions.
func readResponseChoice(c *wire.Reader) *ToolChoice {
	switch c.Shape() {
	case jsonscan.String:
		return &ToolChoice{Mode: c.Text()}
	case jsonscan.Object:
		var named namedChoice
		wire.ReadObject(c, &named, responseChoiceFields)
		switch {
		case Hosted(named.kind):
			refuseHosted(c, named.kind)
			return nil
		case named.kind == typeAllowed:
			refuseAllowed(c)
			return nil
		case named.kind != typeFunction && named.kind != TypeCustom:
			c.Problem(wire.CodeUnsupportedValue,
				`an object must be {"type": "function" or "custom", "name": ...}, but its type is %q`,
				jsonscan.Clip(named.kind))
			return nil
		}
		return &ToolChoice{Mode: ChoiceFunction, Name: FlatName(named.namespace, named.name),
			Custom: named.kind == TypeCustom}
	}
	c.WrongShape("none, auto, required or an object that names a tool")
	return nil
}

var responseChoiceFields = wire.Fields[namedChoice]{
	"type":      wire.TextField(func(n *namedChoice) *string { return &n.kind }),
	"name":      wire.TextField(func(n *namedChoice) *string { return &n.name }),
	"namespace": wire.TextField(func(n *namedChoice) *string { return &n.namespace }),
	"mode":      {Read: func(c *wire.Reader, _ *namedChoice) { c.Skip() }}, // for allowed_tools, which is refused
	"tools": {Read: func(c *wire.Reader, _ *namedChoice) {
		c.Skip()
	}},
	"server_label": {Read: func(c *wire.Reader, _ *namedChoice) { c.Skip() }}, // for mcp
}
