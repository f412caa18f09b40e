package chat

import (
	"strings"

	"sparrow/chat/jinja"
)

// dialect is what differs between the versions of DeepSeek's markup.
type dialect struct {
	block       string // name of the element around calls
	toolsPrefix string // before the tool schemas, one JSON object per line
	toolsSuffix string // after them
}

// declarations writes the tools and the response format of a message. field is the path of the response format, for
// errors.
func (d dialect) declarations(b *strings.Builder, t turn, field string) error {
	if len(t.Tools) > 0 {
		lines := make([]string, len(t.Tools))
		for i, tool := range t.Tools {
			line, err := jinja.JSON(functionDict(tool))
			if err != nil {
				return err
			}
			lines[i] = line
		}
		b.WriteString("\n\n" + d.toolsPrefix + strings.Join(lines, "\n") + d.toolsSuffix)
	}
	if len(t.ResponseFormat) > 0 {
		schema, err := spaced(field, t.ResponseFormat)
		if err != nil {
			return err
		}
		b.WriteString("\n\n" + dsmlFormatPrefix + schema)
	}
	return nil
}

// formatField is the path of a message's response format, which may have come from the request itself.
func formatField(req Request, t turn) string {
	if t.index < 0 || len(req.ResponseFormat) > 0 {
		return "response_format"
	}
	return messageField(t.index, "response_format")
}

// declareFirst puts the request's tools and response format on the first system message, which is added, empty, when
// the conversation does not start with one.
func declareFirst(req Request, turns []turn) []turn {
	tools := offered(req)
	if len(tools) == 0 && len(req.ResponseFormat) == 0 {
		return turns
	}
	if turns[0].Role != System {
		turns = append([]turn{{Message: Message{Role: System}, index: -1}}, turns...)
	}
	first := &turns[0]
	first.Tools = append(first.Tools[:len(first.Tools):len(first.Tools)], tools...)
	if len(req.ResponseFormat) > 0 {
		first.ResponseFormat = req.ResponseFormat
	}
	return turns
}

// lastUser is the index of the last user or developer message, or -1.
func lastUser(turns []turn) int {
	for i := len(turns) - 1; i >= 0; i-- {
		if r := turns[i].Role; r == User || r == Developer {
			return i
		}
	}
	return -1
}

// dropDevelopers removes developer messages before the last user or developer message.
func dropDevelopers(turns []turn) []turn {
	last := lastUser(turns)
	var kept []turn
	for i, t := range turns {
		if t.Role != Developer || i >= last {
			kept = append(kept, t)
		}
	}
	return kept
}

// calls writes calls in DeepSeek's markup:
//
//	<｜DSML｜BLOCK>
//	<｜DSML｜invoke name="N">
//	<｜DSML｜parameter name="K" string="true|false">V</｜DSML｜parameter>
//	</｜DSML｜invoke>
//	</｜DSML｜BLOCK>
//
// String values stand as they are, without any escaping; the others are JSON.
func (d dialect) calls(b *strings.Builder, t turn) error {
	b.WriteString("<" + dsml + d.block + ">\n")
	for i, call := range t.ToolCalls {
		b.WriteString("<" + dsml + `invoke name="` + call.Name + "\">\n")
		params, err := dsmlParameters(t.arguments[i])
		if err != nil {
			return err
		}
		b.WriteString(params)
		b.WriteString("\n</" + dsml + "invoke>\n")
	}
	b.WriteString("</" + dsml + d.block + ">")
	return nil
}

// dsmlParameters writes one line per argument.
func dsmlParameters(args *jinja.Dict) (string, error) {
	var lines []string
	for key, v := range args.All() {
		kind, text := "true", ""
		if s, ok := v.(string); ok {
			text = s
		} else {
			kind = "false"
			var err error
			if text, err = jinja.JSON(v); err != nil {
				return "", err
			}
		}
		lines = append(lines, "<"+dsml+`parameter name="`+key+`" string="`+kind+`">`+text+"</"+dsml+"parameter>")
	}
	return strings.Join(lines, "\n"), nil
}
