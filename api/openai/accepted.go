package openai

import (
	"bytes"
	"encoding/json"

	"sparrow/internal/jsonscan"
)

// fieldNote documents one field of a request that has no effect on the answer.
type fieldNote struct {
	Name string // as on the wire
	Why  string
}

// ignored are accepted with any value of the right shape. None of them changes the text.
var ignored = []struct {
	fieldNote
	shape shape
}{
	{fieldNote{"user", "end-user label; nothing is kept per user"}, shapeString},
	{fieldNote{"safety_identifier", "end-user label; nothing is kept per user"}, shapeString},
	{fieldNote{"metadata", "labels of stored completions; nothing is stored"}, shapeObject},
	{fieldNote{"store", "nothing is stored, whatever is asked"}, shapeBool},
	{fieldNote{"service_tier", "there is one tier"}, shapeString},
	{fieldNote{"prompt_cache_key", "routing hint; prefixes are matched by content, and cache_salt separates tenants"},
		shapeString},
	{fieldNote{"prompt_cache_retention", "prefixes are kept as long as memory allows"}, shapeString},
	{fieldNote{"prompt_cache_options", "prefixes are kept as long as memory allows"}, shapeObject},
	{fieldNote{"prediction", "a guess at the answer that could only make it faster"}, shapeObject},
}

// ignoredInside are the ignored members of objects inside a request. Clients replay an answer as they got it, with
// members that say nothing new.
var ignoredInside = []fieldNote{
	{"messages[].annotations", "part of a replayed answer"},
	{"messages[].parsed", "what OpenAI's client made of the content"},
	{"messages[].tool_calls[].index", "left over in a call assembled from a stream"},
	{"messages[].tool_calls[].function.parsed_arguments", "what OpenAI's client made of the arguments"},
	{"messages[].content[].prompt_cache_breakpoint", "every page of a prompt can be reused, wherever it is cut"},
	{"messages[].content[].cache_control", "every page of a prompt can be reused, wherever it is cut"},
	{"stream_options.include_obfuscation", "chunks are not padded"},
}

// fixed are accepted with the one value that describes what happens anyway; text is that value as JSON.
var fixed = []struct {
	fieldNote
	text string
}{
	{fieldNote{"modalities", "answers are text"}, `["text"]`},
	{fieldNote{"verbosity", "the models take no such instruction; say it in a message"}, `"medium"`},
	{fieldNote{"priority", "requests are served in order of arrival"}, `0`},
	{fieldNote{"use_beam_search", "answers are sampled; use n for several"}, `false`},
	{fieldNote{"skip_special_tokens", "special tokens are not part of the text; ask for logprobs to see them"}, `true`},
	{fieldNote{"spaces_between_special_tokens", "special tokens are not part of the text"}, `true`},
}

// acceptedFields are the ignored, fixed and refused fields that chat and text completions share.
func acceptedFields[T any]() fields[T] {
	all := fields[T]{
		"guided_json":        refuse[T]("use response_format with type json_schema"),
		"guided_regex":       refuse[T]("use response_format with type json_schema and a string pattern"),
		"guided_choice":      refuse[T]("use response_format with type json_schema and an enum"),
		"guided_grammar":     refuse[T]("use response_format with type json_schema"),
		"structured_outputs": refuse[T]("use response_format with type json_schema"),
		"length_penalty":     refuse[T]("it belongs to beam search, and answers are sampled"),
		"prompt_logprobs":    refuse[T]("send a text completion with echo and logprobs"),
	}
	for _, f := range ignored {
		all[f.Name] = ignoreAs[T](f.shape)
	}
	for _, f := range fixed {
		all[f.Name] = fixedAs[T](f.text, f.Why)
	}
	return all
}

// ignoreAny accepts any value and ignores it.
func ignoreAny[T any]() field[T] {
	return field[T]{read: func(c *cursor, _ *T) { c.skip() }}
}

// ignoreAs accepts a value of one shape and ignores it.
func ignoreAs[T any](want shape) field[T] {
	return field[T]{read: func(c *cursor, _ *T) {
		if c.shape() != want {
			c.wrongShape(want.String())
			return
		}
		c.skip()
	}}
}

// fixedAs accepts one value only.
func fixedAs[T any](text, why string) field[T] {
	return field[T]{read: func(c *cursor, _ *T) {
		var got bytes.Buffer
		if err := json.Compact(&got, c.raw()); err == nil && got.String() != text {
			c.problem(CodeUnsupportedValue, "%s is not supported, only %s: %s", jsonscan.Clip(got.String()), text, why)
		}
	}}
}
