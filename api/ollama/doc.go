// Package ollama is the wire format of Ollama's interface as its clients use it to generate: /api/chat and
// /api/generate, and what describes the served model.
//
// In flow request bodies as bytes ([DecodeChat], [DecodeGenerate], [DecodeShow]), which become the chats that they
// describe ([Request.AsChat]); out flow response structs, which a stream writes as lines of JSON, and errors in
// Ollama's shape. The package knows no engine type, reads no clock and does no I/O.
//
// Bodies are read by package wire: fields without effect, such as keep_alive, are named in [wire.Decoder.Ignored]. What
// would change the answer and cannot be honoured is refused: images, templates, other samplers.
package ollama
