package openai

import (
	"fmt"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// Chat completions have an older interface for tools: functions, function_call, and messages of the role function. It
// is converted to tools. [ChatRequest.Functions] records this, because the answer must use the older interface too.

// roleFunction is the older name of RoleTool.
const roleFunction = "function"

// readFunctions reads the list of functions.
func readFunctions(c *wire.Reader, r *ChatRequest) {
	list := wire.ReadList(c, MaxTools, "functions", wire.ReadStruct(c, functionFields))
	if r.Tools != nil {
		c.Problem(wire.CodeInvalidValue, "is the older form of tools, but the request also has tools; send only tools")
		return
	}
	r.Functions = true
	for _, f := range list {
		r.Tools = append(r.Tools, Tool{Type: typeFunction, Function: f})
	}
}

// readTools reads the list of tools.
func readTools(c *wire.Reader, r *ChatRequest) {
	list := ReadTools(c)
	if r.Functions {
		c.Problem(wire.CodeInvalidValue, "the request also has functions, the older form of tools; send only tools")
		return
	}
	r.Tools = list
}

// readFunctionChoice reads none, auto or an object with the name of a function.
func readFunctionChoice(c *wire.Reader, r *ChatRequest) {
	switch c.Shape() {
	case jsonscan.String:
		mode := c.Text()
		if mode != ChoiceNone && mode != ChoiceAuto {
			c.Problem(wire.CodeInvalidValue, "%q is not supported; use none, auto or an object that names a function",
				jsonscan.Clip(mode))
		}
		r.ToolChoice = &ToolChoice{Mode: mode}
	case jsonscan.Object:
		var named namedChoice
		wire.ReadObject(c, &named, choiceNameFields)
		r.ToolChoice = &ToolChoice{Mode: ChoiceFunction, Name: named.name}
	default:
		c.WrongShape("none, auto or an object that names a function")
	}
}

// oldCalls assigns ids to calls in a request with the older field functions, which have no ids.
type oldCalls struct {
	count int
	last  string // id of the last call without an id
}

// settle converts function_call of a message, and results with the role function, to tool calls and tool results.
func (o *oldCalls) settle(m *messageReader) {
	if m.call != nil && m.ToolCalls == nil {
		o.count++
		o.last = fmt.Sprintf("function_call_%d", o.count)
		m.ToolCalls = []ToolCall{{ID: o.last, Type: typeFunction, Function: *m.call}}
	}
	if m.Role == roleFunction {
		m.Role, m.ToolCallID = RoleTool, o.last
	}
}
