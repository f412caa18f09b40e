package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp/syntax"
	"slices"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/grammar"
)

// leftOutHeader is the response header with the types of hosted tools, which the model does not get.
const leftOutHeader = "X-Sparrow-Left-Out"

// noteTools lists the tools that the model does not get, and custom tools whose grammar is not enforced, in response
// headers, the log and the trace.
func noteTools(w http.ResponseWriter, x *exchange, c *openai.ChatRequest, left []string) {
	if len(left) > 0 {
		x.leftOut = left
		w.Header().Set(leftOutHeader, strings.Join(left, ", "))
	}
	for i := range c.Tools {
		if f := c.Tools[i].Format; f != nil && f.Type == openai.ToolGrammar && inputPattern(f) == "" {
			noteIgnored(w, x, []string{x.dialect.tools + ".format"})
			return
		}
	}
}

// inputPattern returns the regular expression for the whole input of a custom tool, or "" if there is none that can be
// enforced.
func inputPattern(f *openai.ToolFormat) string {
	switch {
	case f == nil || f.Type != openai.ToolGrammar:
		return ""
	case f.Syntax == openai.SyntaxRegexp:
		if !enforceable(f.Definition) {
			return ""
		}
		return f.Definition
	}
	pattern, err := grammar.LarkPattern(f.Definition)
	if err != nil {
		return ""
	}
	return pattern
}

// enforceable reports whether package grammar can enforce a regular expression: it has no lookahead and no
// backreferences. The escape \u is allowed as in ECMA-262.
func enforceable(pattern string) bool {
	var e *syntax.Error
	if _, err := syntax.Parse(pattern, syntax.Perl); !errors.As(err, &e) {
		return true
	}
	return e.Code == syntax.ErrInvalidEscape && strings.HasPrefix(e.Expr, `\u`)
}

// toolOf returns a tool for the prompt. A custom tool becomes a function with one argument, the input; its description
// contains the grammar.
func toolOf(t *openai.Tool) chat.Tool {
	f := &t.Function
	out := chat.Tool{Name: t.Name(), Description: f.Description, Parameters: f.Parameters,
		Strict: f.Strict != nil && *f.Strict, Deferred: t.Deferred}
	if t.Type != openai.TypeCustom {
		return out
	}
	out.Parameters = openai.CustomSchema("")
	if g := t.Format; g != nil && g.Type == openai.ToolGrammar {
		out.Description += "\n\nThe input follows this grammar (" + g.Syntax + "):\n" + g.Definition
		if p := inputPattern(g); p != "" {
			out.Enforced = json.RawMessage(openai.CustomSchema("^(?:" + p + ")$"))
		}
	}
	return out
}

// toolbox holds the tools of a request that are not plain functions, by their names in the prompt.
type toolbox map[string]*openai.Tool

func newToolbox(tools []openai.Tool) toolbox {
	var box toolbox
	for i := range tools {
		if t := &tools[i]; t.Type == openai.TypeCustom || t.Namespace != "" {
			if box == nil {
				box = toolbox{}
			}
			box[t.Name()] = t
		}
	}
	return box
}

// custom reports whether a name belongs to a custom tool.
func (b toolbox) custom(name string) bool { return b[name] != nil && b[name].Type == openai.TypeCustom }

// inputs converts the calls of custom tools in a reply: it replaces their arguments by the input.
type inputs struct {
	tools toolbox
	open  map[inputKey]*openai.CustomInput
}

type inputKey struct{ choice, call int }

// translate returns the deltas of an event, in which the arguments of custom tools are replaced by their inputs.
func (in *inputs) translate(ev *sparrow.Event) []chat.Delta {
	if in == nil || in.tools == nil {
		return ev.Deltas
	}
	list := slices.Clone(ev.Deltas)
	for i := range list {
		d := &list[i]
		if d.Kind != chat.DeltaToolCall {
			continue
		}
		key := inputKey{ev.Choice, d.Call.Index}
		if in.tools.custom(d.Call.Name) {
			if in.open == nil {
				in.open = map[inputKey]*openai.CustomInput{}
			}
			in.open[key] = &openai.CustomInput{}
		}
		if r := in.open[key]; r != nil {
			d.Call.Arguments = r.Feed(d.Call.Arguments)
		}
	}
	return list
}

// custom reports whether a call of a choice, which has begun, is a call of a custom tool.
func (in *inputs) custom(choice, call int) bool {
	return in != nil && in.open[inputKey{choice, call}] != nil
}
