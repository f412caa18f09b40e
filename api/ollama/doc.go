// Package ollama is the wire format of Ollama's interface as its clients use it to generate: /api/chat and
// /api/generate, and the endpoints that describe the served model.
//
// [DecodeChat], [DecodeGenerate] and [DecodeShow] decode request bodies, and [Request.AsChat] converts them to chats.
// The package also defines response structs, which a stream writes as lines of JSON, and errors in Ollama's format. It
// uses no engine type, reads no clock and does no I/O.
//
// Bodies are read by package wire: fields without effect, such as keep_alive, are listed in [wire.Decoder.Ignored].
// Fields that would change the answer but are not supported are refused: images, templates, other samplers.
package ollama
