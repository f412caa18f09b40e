package openai

import (
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// fieldNote names a request field that has no effect on the answer, with the reason.
type fieldNote struct {
	Name string // name as sent on the wire
	Why  string
}

// ignored lists fields that are accepted with any value of the right type. They do not change the answer's text.
var ignored = []struct {
	fieldNote
	shape jsonscan.Kind
}{
	{fieldNote{"user", "label of the end user; the server stores nothing per user"}, jsonscan.String},
	{fieldNote{"safety_identifier", "label of the end user; the server stores nothing per user"}, jsonscan.String},
	{fieldNote{"metadata", "labels of stored completions; the server stores no completions"}, jsonscan.Object},
	{fieldNote{"store", "the server stores no completions"}, jsonscan.Bool},
	{fieldNote{"service_tier", "the server has only one service tier"}, jsonscan.String},
	{fieldNote{"prompt_cache_key", "routing hint; prefixes are matched by content, and cache_salt separates tenants"},
		jsonscan.String},
	{fieldNote{"prompt_cache_retention", "cached prefixes are evicted only when memory is needed"}, jsonscan.String},
	{fieldNote{"prompt_cache_options", "cached prefixes are evicted only when memory is needed"}, jsonscan.Object},
	{fieldNote{"prediction", "a predicted output; it could only affect speed"}, jsonscan.Object},
}

// ignoredInside lists the ignored members of objects inside a request. Clients send earlier answers back with all
// members, and these members add no information.
var ignoredInside = []fieldNote{
	{"messages[].annotations", "part of an earlier answer that the client sends back"},
	{"messages[].parsed", "the content as parsed by OpenAI's client"},
	{"messages[].tool_calls[].index", "part of a tool call that a client assembled from a stream"},
	{"messages[].tool_calls[].function.parsed_arguments", "the arguments as parsed by OpenAI's client"},
	{"messages[].content[].prompt_cache_breakpoint", "every page of a prompt can be reused, with or without " +
		"breakpoints"},
	{"messages[].content[].cache_control", "every page of a prompt can be reused, with or without breakpoints"},
	{"stream_options.include_obfuscation", "chunks are not padded"},
}

// fixed lists fields that are accepted with only one value, because the server always behaves as this value states.
// text is the value as JSON.
var fixed = []struct {
	fieldNote
	text string
}{
	{fieldNote{"modalities", "the model generates only text"}, `["text"]`},
	{fieldNote{"use_beam_search", "answers are sampled; send n to get several"}, `false`},
	{fieldNote{"skip_special_tokens", "special tokens are not part of the text; request logprobs to get them"}, `true`},
	{fieldNote{"spaces_between_special_tokens", "special tokens are never part of the text"}, `true`},
}

// acceptedFields returns the ignored, fixed and refused fields that chat and text completions share.
func acceptedFields[T any]() wire.Fields[T] {
	all := wire.Fields[T]{
		"guided_grammar": wire.Refuse[T]("use response_format with type json_schema"),
		"length_penalty": wire.Refuse[T]("it is a parameter of beam search, and answers are sampled"),
	}
	for _, f := range ignored {
		all[f.Name] = wire.IgnoreAs[T](f.shape)
	}
	for _, f := range fixed {
		all[f.Name] = wire.FixedAs[T](f.text, f.Why)
	}
	all["verbosity"] = verbosityField[T]()
	return all
}

// verbosities lists the accepted values of verbosity.
var verbosities = []string{"low", "medium", "high"}

// verbosityField accepts one of [verbosities]. It has no effect: the models support no such instruction.
func verbosityField[T any]() wire.Field[T] {
	return wire.Field[T]{Read: func(c *wire.Reader, _ *T) {
		word, ok := c.Str()
		switch {
		case ok && !slices.Contains(verbosities, word):
			c.Problem(wire.CodeInvalidValue, "%q is not one of %s", jsonscan.Clip(word),
				strings.Join(verbosities, ", "))
		case ok && word != "medium": // the models always write answers of medium verbosity
			c.Note()
		}
	}}
}
