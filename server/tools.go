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

// leftOutHeader lists the types of tools that were not offered to the model, because only a provider can run them.
const leftOutHeader = "X-Sparrow-Left-Out"

// noteTools reports the tools that are hidden from the model, and custom tools whose grammar is not enforced: in the
// response headers, and later in the log and the trace.
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

// inputPattern returns the regular expression that the whole input of a custom tool must match; empty if there is none,
// or none that can be enforced.
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

// enforceable reports whether a mask can enforce a regular expression: not one with lookahead or backreferences. The
// escape \u is ECMA-262's, which package grammar translates.
func enforceable(pattern string) bool {
	var e *syntax.Error
	if _, err := syntax.Parse(pattern, syntax.Perl); !errors.As(err, &e) {
		return true
	}
	return e.Code == syntax.ErrInvalidEscape && strings.HasPrefix(e.Expr, `\u`)
}

// toolOf returns the form in which the model sees a tool. A custom tool becomes a function with one argument, its
// input; the description contains the grammar.
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

// toolbox holds the client's declarations of tools that are not plain functions, by the name that the model uses.
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

// inputs converts the calls of custom tools in one reply: their arguments become the tools' input.
type inputs struct {
	tools toolbox
	open  map[inputKey]*openai.CustomInput
}

type inputKey struct{ choice, call int }

// translate returns the deltas of an event with the input of custom tools in place of arguments.
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

// custom reports whether a call that has begun calls a custom tool.
func (in *inputs) custom(choice, call int) bool {
	return in != nil && in.open[inputKey{choice, call}] != nil
}
