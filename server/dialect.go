package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sparrow"
	"sparrow/api/anthropic"
	"sparrow/api/ollama"
	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// dialect defines how an interface writes errors and common fields.
type dialect struct {
	// failure returns the body of an error.
	failure func(e *wire.Error, requestID string) any
	// format and parameters are the fields that hold the schemas of the answer and of a tool in a request.
	format, parameters string
	// tools is the name of the field that holds the tools.
	tools string
	// fields maps field names of chat completions to the names in this interface; the first match wins. Indices are
	// left out, because one message here may become several in a chat.
	fields []fieldName
}

type fieldName struct{ chat, own string }

var openaiDialect = dialect{
	failure: func(e *wire.Error, _ string) any { return openai.NewErrorBody(e) },
	format:  schemaParam, parameters: "tools[].function.parameters", tools: "tools[].custom",
}

var responsesDialect = dialect{
	failure: openaiDialect.failure,
	format:  "text.format.schema", parameters: "tools[].parameters", tools: "tools[]",
	fields: []fieldName{
		{"messages", "input"},
		{"prompt", "input"},
		{"max_tokens", "max_output_tokens"},
		{"reasoning_effort", "reasoning.effort"},
		{"max_completion_tokens", "max_output_tokens"},
		{schemaParam, "text.format.schema"},
		{"response_format", "text.format"},
	},
}

var anthropicDialect = dialect{
	failure: func(e *wire.Error, requestID string) any { return anthropic.NewErrorBody(e, requestID) },
	format:  "output_config.format.schema", parameters: "tools[].input_schema",
	fields: []fieldName{
		{"messages", "messages"},
		{"prompt", "messages"},
		{"stop", "stop_sequences"},
		{schemaParam, "output_config.format.schema"},
		{"response_format", "output_config.format"},
	},
}

var ollamaDialect = dialect{
	failure: func(e *wire.Error, _ string) any { return ollama.NewErrorBody(e) },
	format:  "format", parameters: "tools[].function.parameters",
	fields: []fieldName{
		{"messages", "messages"},
		{"max_tokens", "options.num_predict"},
		{"stop", "options.stop"},
		{"response_format", "format"},
	},
}

// dialectOf returns the interface that a path belongs to, even if the path has no route.
func dialectOf(path string) *dialect {
	switch {
	case path == messagesPath || strings.HasPrefix(path, messagesPath+"/"):
		return &anthropicDialect
	case strings.HasPrefix(path, ollamaPrefix):
		return &ollamaDialect
	case path == responsesPath || strings.HasPrefix(path, responsePrefix):
		return &responsesDialect
	}
	return &openaiDialect
}

// rename replaces the field names in an error about a chat by the names in this interface.
func (d *dialect) rename(err error, requestID string) error {
	if err == nil {
		return nil
	}
	bad := toError(err, requestID)
	if bad.Status() != http.StatusBadRequest {
		return err
	}
	list := slices.Clone(bad.Problems)
	for i := range list {
		for _, f := range d.fields {
			rest, ok := strings.CutPrefix(list[i].Param, f.chat)
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				list[i].Param = f.own
				break
			}
		}
	}
	return wire.JoinProblems(list)
}

// maxIgnoredKeywords is the maximum number of schema keywords that a response lists.
const maxIgnoredKeywords = 32

// a header cannot contain it unquoted
func (d *dialect) keywords(list []sparrow.Ignored) []string {
	var names []string
	for _, k := range list {
		name := d.format
		if k.Tool >= 0 {
			name = d.parameters
		}
		if k.Keyword != "" {
			place := k.Pointer + "/" + k.Keyword
			if quoted := strconv.QuoteToASCII(place); quoted != `"`+place+`"` {
				place = quoted // no header holds it as it is
			}
			name += place
		}
		if slices.Contains(names, name) {
			continue
		}
		if len(names) == maxIgnoredKeywords {
			return append(names, "...")
		}
		names = append(names, name)
	}
	return names
}
