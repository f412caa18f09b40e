// Package grammar compiles a JSON schema to masks over tokens, so that the output of a model always parses and
// satisfies the schema.
//
// Its inputs are a vocabulary, once ([NewTokens]), a schema ([Compile]) or none ([JSONObject]), and then the chosen
// tokens one by one ([State.Accept]). It returns the tokens that are allowed next ([State.Mask]) and whether the
// document is complete ([State.Done]). It depends on no model and no tokenizer's algorithm; a token is a number and the
// bytes it represents.
//
// # How it works
//
// A schema becomes a graph of nodes, one per position of a value. A document in progress is a set of readings; a
// reading is a position in a leaf (a string, a number, a bracket: an automaton over bytes) above a stack of open
// objects and arrays. States are built on demand, when documents reach them.
//
// The mask of a leaf state is found by walking the vocabulary's trie once. Tokens that stay inside the leaf are allowed
// in every context; the few tokens that leave it are followed through the leaves after it. Masks are cached per leaf
// state, and masks of strings, numbers and punctuation are shared by all grammars of a vocabulary, so most steps only
// copy a bitmap.
//
// # What is supported
//
// The keywords of drafts 4 to 2020-12 that assert something, except unevaluatedProperties, unevaluatedItems and dynamic
// references: docs/schemas.md has the list, with the limits of each. Properties are written in the order of the schema,
// optional ones can be skipped, other names come last. Patterns are RE2's, unanchored unless anchored, with \s, \S, \u
// and the dot as in ECMA-262. not, oneOf and if become alternatives by negation, keyword by keyword.
//
// Annotations such as title and default are ignored. Unknown keywords and formats, and keywords that cannot be
// enforced, are ignored and listed by [Grammar.Ignored]; with Options.Strict they are errors. Schemas are limited in
// size, see the constants.
//
// # What is never produced though JSON allows it
//
// Whitespace is at most one space after a comma, a colon or a bracket, or before a closing bracket, or there (but not
// after a colon) a newline with indentation of up to [MaxIndent] spaces. The document begins with its first byte and
// ends with its last. Documents nest at most [MaxDepth] deep. Integers have no point and no exponent; numbers are short
// enough for a float64, and those with bounds have no exponent. Strings with a pattern or format, enum values and
// property names are spelled without needless escapes. Names that the schema does not list can repeat, as JSON allows;
// listed names cannot.
package grammar
