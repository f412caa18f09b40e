package openai

import (
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
)

// fieldNote documents one field of a request that has no effect on the answer.
type fieldNote struct {
	Name string // as on the wire
	Why  string
}

// ignored are accepted with any value of the right shape. None of them changes the text.
var ignored = []struct {
	fieldNote
	shape jsonscan.Kind
}{
	{fieldNote{"user", "end-user label; nothing is kept per user"}, jsonscan.String},
	{fieldNote{"safety_identifier", "end-user label; nothing is kept per user"}, jsonscan.String},
	{fieldNote{"metadata", "labels of stored completions; nothing is stored"}, jsonscan.Object},
	{fieldNote{"store", "nothing is stored, whatever is asked"}, jsonscan.Bool},
	{fieldNote{"service_tier", "there is one tier"}, jsonscan.String},
	{fieldNote{"prompt_cache_key", "routing hint; prefixes are matched by content, and cache_salt separates tenants"},
		jsonscan.String},
	{fieldNote{"prompt_cache_retention", "prefixes are kept as long as memory allows"}, jsonscan.String},
	{fieldNote{"prompt_cache_options", "prefixes are kept as long as memory allows"}, jsonscan.Object},
	{fieldNote{"prediction", "a guess at the answer that could only make it faster"}, jsonscan.Object},
}

// ignoredInside are the ignored members of objects inside a request. Clients send an answer back as they received it,
// with members that add no information.
var ignoredInside = []fieldNote{
	{"messages[].annotations", "part of a replayed answer"},
	{"messages[].parsed", "what OpenAI's client made of the content"},
	{"messages[].tool_calls[].index", "left over in a call assembled from a stream"},
	{"messages[].tool_calls[].function.parsed_arguments", "what OpenAI's client made of the arguments"},
	{"messages[].content[].prompt_cache_breakpoint", "every page of a prompt can be reused, wherever it is cut"},
	{"messages[].content[].cache_control", "every page of a prompt can be reused, wherever it is cut"},
	{"stream_options.include_obfuscation", "chunks are not padded"},
}

// fixed are fields that are accepted with one value only, which describes what the server does in any case; text is
// that value as JSON.
var fixed = []struct {
	fieldNote
	text string
}{
	{fieldNote{"modalities", "answers are text"}, `["text"]`},
	{fieldNote{"use_beam_search", "answers are sampled; use n for several"}, `false`},
	{fieldNote{"skip_special_tokens", "special tokens are not part of the text; ask for logprobs to see them"}, `true`},
	{fieldNote{"spaces_between_special_tokens", "special tokens are not part of the text"}, `true`},
}

// acceptedFields are the ignored, fixed and refused fields that chat and text completions share.
func acceptedFields[T any]() wire.Fields[T] {
	all := wire.Fields[T]{
		"guided_grammar": wire.Refuse[T]("use response_format with type json_schema"),
		"length_penalty": wire.Refuse[T]("it belongs to beam search, and answers are sampled"),
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

// verbosities are the words for how long answers should be.
var verbosities = []string{"low", "medium", "high"}

// verbosityField takes one of the words. It has no effect: the models take no such instruction.
func verbosityField[T any]() wire.Field[T] {
	return wire.Field[T]{Read: func(c *wire.Reader, _ *T) {
		word, ok := c.Str()
		switch {
		case ok && !slices.Contains(verbosities, word):
			c.Problem(wire.CodeInvalidValue, "%q is not one of %s", jsonscan.Clip(word),
				strings.Join(verbosities, ", "))
		case ok && word != "medium": // what the models do without being told
			c.Note()
		}
	}}
}
