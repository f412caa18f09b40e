// Package chat renders a conversation as the text that a model was trained on, and parses the text that a model
// generates into reasoning, content and tool calls.
//
// The input is a [Request]: messages, tools, and whether to reason. The output is a [Prompt]: one string that contains
// the family's markers, and the strings that end the reply. In the other direction a [Parser] takes the reply in pieces
// of any length and returns [Delta] values that never contain a part of a marker.
//
// Each family is one file with one [Format]: [DeepSeekV4], [DeepSeekV32], [DeepSeekV31], [GLM5], and [Template] for
// checkpoints that have a Jinja chat template. [Detect] chooses among them. The package uses no token ids, no engine
// and no HTTP: the caller encodes the prompt with added tokens matched, and must keep special tokens when decoding,
// because parsers look for their text.
//
// # Control tokens in messages are text
//
// A message may spell a marker, such as <｜User｜>: a user typed it, or a tool returned it. This text must not begin a
// turn. [Prompt.Content] lists the bytes of the prompt that come from the request: contents, reasoning, names, calls
// and their arguments, tools, schemas, template arguments. The encoder matches control tokens only in the other bytes;
// text with at least one byte in Content is not a control token. Roles and special tokens are not content, because they
// come from this package and from the checkpoint. If the model continues the last message (ContinueFinal), that message
// is not content either: its markers are part of the reply. [Request.ControlTokens] disables this protection.
//
// Marks are stored separately from the text ([sparrow/internal/mark]). Marks inside the text would change the results
// of strip, split, length and searches in templates. The native formats therefore write to a builder that records
// spans. In [sparrow/internal/jinja] a string of the request has its own type: tests, comparisons and lengths use its
// characters, and every operation that makes a string from it copies the marks. The rendered text is the same bytes
// with and without marks, and so are the token ids of a conversation that spells no marker.
package chat
