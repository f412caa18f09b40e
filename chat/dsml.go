package chat

import (
	"slices"
	"strings"

	"sparrow/internal/jinja"
	"sparrow/internal/mark"
)

// dialect holds the differences between versions of DeepSeek's markup.
type dialect struct {
	block       string // name of the element around the calls
	gap         string // text between the marker of an element and its name
	toolsPrefix string // text before the tool schemas, one JSON object per line
	toolsSuffix string // text after the tool schemas
}

// declarations writes the tools and the response format of a message. field is the path of the response format in the
// request, for errors.
func (d dialect) declarations(b *mark.Builder, t turn, field string, memo *Memo) error {
	if len(t.Tools) > 0 {
		lines := make([]string, len(t.Tools))
		for i := range t.Tools {
			shown := memo.tool(&t.Tools[i])
			if shown.err != nil {
				return shown.err
			}
			lines[i] = shown.line
		}
		b.WriteString("\n\n" + d.toolsPrefix)
		b.Mark(strings.Join(lines, "\n"))
		b.WriteString(d.toolsSuffix)
	}
	if len(t.ResponseFormat) > 0 {
		schema, err := spaced(field, t.ResponseFormat)
		if err != nil {
			return err
		}
		b.WriteString("\n\n" + dsmlFormatPrefix)
		b.Mark(schema)
	}
	return nil
}

// formatField returns the path of a message's response format, which declareFirst may have copied from the request.
func formatField(req Request, t turn) string {
	if t.index < 0 || len(req.ResponseFormat) > 0 {
		return "response_format"
	}
	return messageField(t.index, "response_format")
}

// declareFirst adds the request's tools and response format to the first system message. If the conversation does not
// start with a system message, it adds an empty one.
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

// lateSystem moves system messages after the first turn into the user's turn: the formats support system text only at
// the beginning, and a reply follows a user's turn.
func lateSystem(turns []turn) []turn {
	first := slices.IndexFunc(turns, func(t turn) bool { return t.Role != System })
	if first < 0 || !slices.ContainsFunc(turns[first:], func(t turn) bool { return t.Role == System }) {
		return turns
	}
	list := slices.Clone(turns[:first])
	for _, t := range turns[first:] {
		n := len(list) - 1
		if t.Role != System || len(t.Tools) > 0 || len(t.ResponseFormat) > 0 {
			list = append(list, t)
			continue
		}
		if t.Role = User; list[n].Role == User {
			list[n].Content += "\n\n" + t.Content
			continue
		}
		list = append(list, t)
	}
	return list
}

// lastUser returns the index of the last user or developer message, or -1.
func lastUser(turns []turn) int {
	for i := len(turns) - 1; i >= 0; i-- {
		if r := turns[i].Role; r == User || r == Developer {
			return i
		}
	}
	return -1
}

// dropDevelopers removes all developer messages before index lastUser(turns).
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
// String values are written without any escaping; the others are JSON.
func (d dialect) calls(b *mark.Builder, t turn) error {
	tags := d.tags()
	b.WriteString(tags.open + "\n")
	for i, call := range t.ToolCalls {
		b.WriteString(tags.invokeOpen)
		b.Mark(call.Name)
		b.WriteString("\">\n")
		if err := tags.parameters(b, t.arguments[i]); err != nil {
			return err
		}
		b.WriteString("\n" + tags.invokeClose + "\n")
	}
	b.WriteString(tags.close)
	return nil
}

// dsmlTags holds the opening and closing tags of elements.
type dsmlTags struct{ open, close, invokeOpen, invokeClose, paramOpen, paramClose string }

func (d dialect) tags() dsmlTags {
	name := dsml + d.gap
	return dsmlTags{open: "<" + dsml + d.gap + d.block + ">", close: "</" + dsml + d.gap + d.block + ">",
		invokeOpen: "<" + name + `invoke name="`, invokeClose: "</" + name + "invoke>",
		paramOpen: "<" + name + `parameter name="`, paramClose: "</" + name + "parameter>"}
}

// parameters writes one line per argument.
func (tags dsmlTags) parameters(b *mark.Builder, args *jinja.Dict) error {
	first := true
	for key, v := range args.All() {
		kind := "true"
		text, ok := v.(string)
		if !ok {
			kind = "false"
			var err error
			if text, err = jinja.JSON(v); err != nil {
				return err
			}
		}
		if !first {
			b.WriteString("\n")
		}
		first = false
		b.WriteString(tags.paramOpen)
		b.Mark(key)
		b.WriteString(`" string="` + kind + `">`)
		b.Mark(text)
		b.WriteString(tags.paramClose)
	}
	return nil
}
