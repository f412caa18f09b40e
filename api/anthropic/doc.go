// Package anthropic is the wire format of POST /v1/messages and its count_tokens, as Anthropic's clients use it.
//
// [DecodeMessages] and [DecodeCount] decode request bodies, and [Request.AsChat] converts them to chats. The package
// also defines response structs, events of a stream and errors in Anthropic's formats. It uses no engine type, reads no
// clock and does no I/O.
//
// Bodies are read by package wire: fields without effect, such as cache_control, are listed in [wire.Decoder.Ignored].
// Fields that would change the answer but are not supported are refused: images, documents, tools that Anthropic runs
// itself.
package anthropic
