package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// The types of tools that are offered to the model.
const (
	typeFunction  = "function"
	TypeCustom    = "custom"    // a tool whose input is text
	typeNamespace = "namespace" // only in /v1/responses: a group of tools with a common prefix
)

// hostedTools lists the types of tools that only a provider can run, and of tools whose calls only the provider's
// models can write. They are not offered to the model.
var hostedTools = []string{"web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation",
	"mcp", "computer", "computer_use_preview", "local_shell", "shell", "apply_patch", "tool_search"}

// Hosted reports whether tools of a type are not offered. A type may end with the date of a version.
func Hosted(kind string) bool {
	return slices.ContainsFunc(hostedTools, func(name string) bool {
		date, ok := strings.CutPrefix(kind, name)
		return ok && (date == "" || date[0] == '_' && strings.Trim(date, "_0123456789") == "")
	})
}

// Tool is a function or custom tool that the model may call.
type Tool struct {
	Type     string   `json:"type"`     // function or custom; hosted tools are kept only for messages that name them
	Function Function `json:"function"` // for a custom tool: its name and description

	Format    *ToolFormat `json:"-"` // for a custom tool: format of its input; nil means any text
	Namespace string      `json:"-"` // namespace of the tool, in /v1/responses; empty if none
	// Deferred tools can be called but the prompt does not list them: a message shows them after a search for tools.
	Deferred bool `json:"-"`
}

// Name returns the tool's name in the prompt, which starts with its namespace.
func (t *Tool) Name() string { return FlatName(t.Namespace, t.Function.Name) }

// FlatName joins a namespace and the name of a tool to the name in the prompt.
func FlatName(namespace, name string) string {
	switch {
	case namespace == "":
		return name
	case strings.HasSuffix(namespace, "_"):
		return namespace + name
	}
	return namespace + "__" + name
}

// Declaration returns the JSON text that shows a deferred tool in a conversation.
func (t *Tool) Declaration() string {
	parameters := t.Function.Parameters
	if t.Type == TypeCustom {
		parameters = CustomSchema("")
	}
	text, err := wire.Marshal(struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}{t.Name(), t.Function.Description, parameters})
	if err != nil {
		return t.Name() // a schema that was read as JSON can always be encoded
	}
	return string(text)
}

// Offered returns the tools that the model may call.
func Offered(tools []Tool) []Tool {
	if !slices.ContainsFunc(tools, func(t Tool) bool { return Hosted(t.Type) }) {
		return tools
	}
	var list []Tool
	for _, t := range tools {
		if !Hosted(t.Type) {
			list = append(list, t)
		}
	}
	return list
}

// LeftOut returns the types of the hosted tools, each once. The model does not get them.
func LeftOut(tools []Tool) []string {
	var list []string
	for _, t := range tools {
		if Hosted(t.Type) && !slices.Contains(list, t.Type) {
			list = append(list, t.Type)
		}
	}
	return list
}

// Function is the declaration of a function that the model may call.
type Function struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Parameters is the JSON schema of the arguments, with names in the order in which they were sent; nil means no
	// arguments.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Strict     *bool           `json:"strict,omitempty"` // whether arguments must follow the schema
}

// ToolFormat is the format that the input of a custom tool must have.
type ToolFormat struct {
	Type       string `json:"type"`             // text or grammar
	Syntax     string `json:"syntax,omitempty"` // syntax of a grammar
	Definition string `json:"definition,omitempty"`
}

// The types of a ToolFormat and the syntaxes of a grammar.
const (
	ToolText     = "text"
	ToolGrammar  = "grammar"
	SyntaxLark   = "lark"
	SyntaxRegexp = "regex"
)

var toolFormatFields = wire.Fields[ToolFormat]{
	"type":       wire.TextField(func(f *ToolFormat) *string { return &f.Type }),
	"syntax":     wire.TextField(func(f *ToolFormat) *string { return &f.Syntax }),
	"definition": wire.TextField(func(f *ToolFormat) *string { return &f.Definition }),
	// In chat completions, syntax and definition are inside an object grammar.
	"grammar": {Read: func(c *wire.Reader, f *ToolFormat) { wire.ReadObject(c, f, grammarFields) }},
}

var grammarFields = wire.Fields[ToolFormat]{
	"syntax":     wire.TextField(func(f *ToolFormat) *string { return &f.Syntax }),
	"definition": wire.TextField(func(f *ToolFormat) *string { return &f.Definition }),
}

func (f *ToolFormat) check(p *wire.Problems, at, grammar string) {
	switch {
	case f == nil || f.Type == ToolText:
	case f.Type != ToolGrammar:
		p.AddNew(wire.CodeUnsupportedValue, at+".type", "%q is not supported; use %s or %s", jsonscan.Clip(f.Type),
			ToolText, ToolGrammar)
	case f.Syntax != SyntaxLark && f.Syntax != SyntaxRegexp:
		p.AddNew(wire.CodeUnsupportedValue, grammar+".syntax", "%q is not supported; use %s or %s",
			jsonscan.Clip(f.Syntax), SyntaxLark, SyntaxRegexp)
	case f.Definition == "":
		p.AddNew(wire.CodeMissing, grammar+".definition", "required with type %s", ToolGrammar)
	case f.Syntax == SyntaxRegexp:
		if err := brokenPattern(f.Definition); err != nil {
			p.AddNew(wire.CodeInvalidValue, grammar+".definition", "is not a regular expression: %v", err)
		}
	}
}

// brokenPattern reports a pattern that is invalid in every regular-expression syntax. Lookahead, backreferences and
// other constructs of some syntaxes are accepted. They cannot be enforced, which a header of the response reports.
func brokenPattern(pattern string) error {
	var e *syntax.Error
	if _, err := syntax.Parse(pattern, syntax.Perl); !errors.As(err, &e) {
		return nil
	}
	switch e.Code {
	case syntax.ErrMissingParen, syntax.ErrUnexpectedParen, syntax.ErrMissingBracket, syntax.ErrTrailingBackslash,
		syntax.ErrMissingRepeatArgument, syntax.ErrInvalidCharRange, syntax.ErrInvalidUTF8:
		return fmt.Errorf("%s: %.100q", e.Code, e.Expr)
	}
	return nil
}

// The modes of a tool choice.
const (
	ChoiceNone     = "none"
	ChoiceAuto     = "auto"
	ChoiceRequired = "required"
	ChoiceFunction = "function" // an object with the function's name on the wire
)

// ToolChoice restricts the model's use of tools.
type ToolChoice struct {
	Mode string
	Name string // name of the function, if Mode is ChoiceFunction
	// Custom reports that Name is a custom tool. A response then repeats the choice with the type custom.
	Custom bool
}

// MarshalJSON writes the mode as a string, or the object that names a function.
func (t ToolChoice) MarshalJSON() ([]byte, error) {
	if t.Mode != ChoiceFunction {
		return wire.Marshal(t.Mode)
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	named.Type, named.Function.Name = typeFunction, t.Name
	return wire.Marshal(named)
}

// ReadTools reads an array of tools. For hosted tools only the type is kept.
func ReadTools(c *wire.Reader) []Tool {
	return wire.ReadList(c, MaxTools, "tools", func() (Tool, bool) {
		if kind := c.TextMember("type"); Hosted(kind) {
			c.Skip()
			return Tool{Type: kind}, true
		}
		return wire.ReadStruct(c, toolFields)()
	})
}

var toolFields = wire.Fields[Tool]{
	"type":     wire.TextField(func(t *Tool) *string { return &t.Type }),
	"function": {Read: func(c *wire.Reader, t *Tool) { wire.ReadObject(c, &t.Function, functionFields) }},
	"custom":   {Read: func(c *wire.Reader, t *Tool) { wire.ReadObject(c, t, customFields) }},
}

var functionFields = wire.Fields[Function]{
	"name":        wire.TextField(func(f *Function) *string { return &f.Name }),
	"description": wire.TextField(func(f *Function) *string { return &f.Description }),
	"strict":      wire.OptionalBool(func(f *Function) **bool { return &f.Strict }),
	"parameters":  {Read: func(c *wire.Reader, f *Function) { f.Parameters = readSchema(c) }},
}

// customFields holds the fields of a custom tool, which are inside an object custom in chat completions.
var customFields = wire.Fields[Tool]{
	"name":        wire.TextField(func(t *Tool) *string { return &t.Function.Name }),
	"description": wire.TextField(func(t *Tool) *string { return &t.Function.Description }),
	"format": {Read: func(c *wire.Reader, t *Tool) {
		t.Format = &ToolFormat{}
		wire.ReadObject(c, t.Format, toolFormatFields)
	}},
}

// maxFlatName is the maximum length of a name with its namespace.
const maxFlatName = 2 * wire.MaxNameBytes

// CheckTools checks the types and names of tools. It returns false if there are too many to check.
func CheckTools(p *wire.Problems, tools []Tool) bool {
	return checkToolList(p, ".function.name", tools, func(i int) string { return fmt.Sprintf("tools[%d]", i) })
}

// checkToolList validates tools; place returns the path of tool i in the request, and field is the path of the name
// relative to that. It returns false if there are too many tools.
func checkToolList(p *wire.Problems, field string, tools []Tool, place func(i int) string) bool {
	if !wire.WantAtMost(p, "tools", len(tools), MaxTools, "tools") {
		return false
	}
	var names wire.NameSet
	for i := range tools {
		t, at := &tools[i], place(i)
		name := at + field
		switch {
		case Hosted(t.Type):
			continue
		case t.Type == TypeCustom:
			format, grammar := at+".format", at+".format"
			if field == ".function.name" { // chat completions nest both
				name, format = at+".custom.name", at+".custom.format"
				grammar = format + ".grammar"
			}
			t.Format.check(p, format, grammar)
		case t.Type != typeFunction:
			reportType(p, at+".type", t.Type)
			continue
		}
		if checkName(p, name, t.Function.Name); t.Function.Name == "" {
			continue
		}
		wire.WantShort(p, name, t.Name(), maxFlatName)
		if !names.Add(t.Name()) {
			p.AddNew(wire.CodeInvalidValue, name, "%q is also the name of an earlier tool; send different "+
				"names", jsonscan.Clip(t.Name()))
		}
	}
	return true
}
