// Package chat turns a conversation into the text a model was trained on, and the text a model writes back into
// reasoning, content and tool calls.
//
// The input is a [Request]: messages, tools, whether to think. The output is a [Prompt]: one string that holds the
// family's markers, and the strings that end the reply. In the other direction a [Parser] takes the reply in pieces
// of any length and returns [Delta] values that never contain a part of a marker.
//
// Each family is one file with one [Format]: [DeepSeekV4], [DeepSeekV32], [DeepSeekV31], [GLM5], and [Template] for
// checkpoints that have a Jinja chat template. [Detect] chooses among them. The package uses no token ids, no engine
// and no HTTP: the caller encodes the prompt with added tokens matched, and must keep special tokens when decoding,
// because parsers look for their text.
package chat
