package chat

import (
	"strings"

	"sparrow/chat/jinja"
)

// dsmlCalls writes calls in DeepSeek's markup:
//
//	<｜DSML｜BLOCK>
//	<｜DSML｜invoke name="N">
//	<｜DSML｜parameter name="K" string="true|false">V</｜DSML｜parameter>
//	</｜DSML｜invoke>
//	</｜DSML｜BLOCK>
//
// String values stand as they are, without any escaping; the others are JSON. block is the name of the outer element,
// which differs between model versions.
func dsmlCalls(b *strings.Builder, block string, t turn) error {
	b.WriteString("<" + dsml + block + ">\n")
	for i, call := range t.ToolCalls {
		b.WriteString("<" + dsml + `invoke name="` + call.Name + "\">\n")
		params, err := dsmlParameters(t.arguments[i])
		if err != nil {
			return err
		}
		b.WriteString(params)
		b.WriteString("\n</" + dsml + "invoke>\n")
	}
	b.WriteString("</" + dsml + block + ">")
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
