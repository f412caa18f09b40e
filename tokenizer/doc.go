// Package tokenizer encodes text to token ids and decodes token ids to text, as a checkpoint's tokenizer.json
// specifies.
//
// A [Tokenizer] is built from tokenizer.json and, if it exists, tokenizer_config.json. It encodes strings, decodes ids
// together or one by one ([Decoder]), and returns the bytes that a token represents.
//
// Text is encoded in four stages, one file each:
//
//	added.go      added tokens (<think>, <｜User｜>, ...) are separated from the text
//	normalize.go  the rest of the text is normalised (usually unchanged)
//	pretok.go     and divided into pieces by patterns (pattern.go, scan.go)
//	bpe.go        each piece is merged, pair by pair, into tokens
//
// Vocabularies are stored as bytes. The byte-level alphabet of the file, in which a space is Ġ, is decoded while
// loading (alphabet.go).
//
// # Invalid UTF-8
//
// Any string can be encoded. An invalid byte counts as U+FFFD when text is divided into pieces, and as itself when
// pieces are merged. With a byte-level vocabulary and without a normalizer, Decode(Encode(s)) == s for every s, valid
// or not. The output of a [Decoder] is valid UTF-8.
//
// # Unicode
//
// Character classes are those of the standard library's unicode package. Tokenizers with a later version of Unicode may
// divide text with newly assigned characters differently.
//
// The package does not read the environment, write files, or render chat messages.
package tokenizer
