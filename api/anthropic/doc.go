// Package anthropic is the wire format of POST /v1/messages and its count_tokens, as Anthropic's clients use it.
//
// In flow request bodies as bytes ([DecodeMessages], [DecodeCount]), which become the chat that they describe
// ([Request.AsChat]); out flow response structs, events of a stream and errors in Anthropic's shapes. The package knows
// no engine type, reads no clock and does no I/O.
//
// Bodies are read by package wire: fields without effect, such as cache_control, are named in [wire.Decoder.Ignored].
// What would change the answer and cannot be honoured is refused: images, documents, tools that Anthropic runs itself.
package anthropic
