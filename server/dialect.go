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

// dialect holds how an API (OpenAI's, Anthropic's, Ollama's) formats errors and names fields.
type dialect struct {
	// failure returns the body of an error.
	failure func(e *wire.Error, requestID string) any
	// format and parameters are the request fields that contain the schema of the answer and of a tool.
	format, parameters string
	// tools is the request field that contains the tools.
	tools string
	// fields maps field names of chat completions to those of this API; the first match is used. Indices are omitted,
	// because a message of this API may be several messages of a chat.
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

// dialectOf returns the API to which a path belongs, even if the path has no route.
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

// rename replaces the field names of chat completions in an error by those of this API.
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

// keywords returns the ignored schema keywords of a request as paths, for a response header.
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
				place = quoted // a header cannot contain the path unquoted
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
