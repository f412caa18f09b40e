// Package tokenizer encodes text to token ids and decodes token ids to text, as a checkpoint's tokenizer.json
// prescribes.
//
// From tokenizer.json and, if there is one, tokenizer_config.json it makes a [Tokenizer], which encodes strings,
// decodes ids at once or one by one ([Decoder]), and returns the bytes that a token represents.
//
// Text passes four stages, one file each:
//
//	added.go      added tokens (<think>, <｜User｜>, ...) are separated from the text
//	normalize.go  the rest of the text is normalised (usually unchanged)
//	pretok.go     and divided into pieces by patterns (pattern.go, scan.go)
//	bpe.go        each piece is merged, pair by pair, into tokens
//
// Vocabularies are stored as raw bytes: the byte-level alphabet of the file, in which a space is spelled Ġ, is undone
// while loading (alphabet.go).
//
// # Invalid UTF-8
//
// Any string can be encoded. A byte that is not part of a character counts as U+FFFD when text is divided into pieces
// and as itself when pieces are merged, so with a byte-level vocabulary Decode(Encode(s)) == s for every s, valid or
// not (unless a normalizer changes it). A [Decoder] emits valid UTF-8 only.
//
// # Unicode
//
// Character classes are those of the standard library's unicode package. Text using characters assigned in a later
// version can be divided differently by a tokenizer built on that version.
//
// The package never reads the environment, never writes files and does not render chat messages; the caller does.
package tokenizer
