// Package chat turns a conversation into the text a model was trained on, and the text a model writes back into
// reasoning, content and tool calls.
//
// In flows a [Request]: messages, tools, whether to think. Out flows a [Prompt]: one string with the family's markers
// already in it, and the strings that end the reply. In the other direction a [Parser] takes the reply piece by piece,
// cut anywhere, and gives [Delta] values that never contain half a marker.
//
// Each family is one file with one [Format]: [DeepSeekV4], [DeepSeekV32], [DeepSeekV31], [GLM5], and [Template]
// for checkpoints that carry a Jinja chat template. [Detect] chooses among them. The package knows no token ids, no engine and no HTTP: the
// caller encodes the prompt with added tokens matched and must keep special tokens when decoding, or the markers the
// parsers look for are gone.
package chat
