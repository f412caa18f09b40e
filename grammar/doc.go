// Package grammar compiles a JSON schema to masks over tokens, so that the output of a model always parses and
// satisfies the schema.
//
// Its inputs are a vocabulary ([NewTokens]), a schema ([Compile]) or none ([JSONObject]), and then the chosen tokens
// one by one ([State.Accept]). It returns the tokens that are allowed next ([State.Mask]) and whether the document is
// complete ([State.Done]). It does not depend on a model or on a tokenizer's algorithm: a token is a number and the
// bytes that it represents.
//
// # How it works
//
// A schema is compiled to a pushdown automaton: a graph of nodes, one per position of a value. A leaf (a string, a
// number, a bracket) is an automaton over bytes. A document in progress is a set of configurations; a configuration is
// a position in a leaf and a stack of open objects and arrays. States are built when a document reaches them.
//
// The mask of a leaf state is computed by one walk over the vocabulary's trie. Tokens that stay inside the leaf are
// allowed in every context. The few tokens that go beyond its end are followed through the leaves after it. Masks are
// cached per leaf state, and masks of strings, numbers and punctuation are shared by all grammars of a vocabulary, so
// most steps only copy a bitmap.
//
// # What is supported
//
// The validation keywords of drafts 4 to 2020-12, except unevaluatedProperties, unevaluatedItems and dynamic
// references; docs/schemas.md lists them with their limits. Properties are written in the order of the schema, optional
// properties can be omitted, and other names come last. Patterns have RE2's syntax and match anywhere in a string
// unless they are anchored; \s, \S, \u and the dot have the meaning of ECMA-262. not, oneOf and if are converted to
// alternatives by negating single keywords.
//
// Annotations such as title and default are ignored. Unknown keywords and formats, and keywords that cannot be
// enforced, are ignored and listed by [Grammar.Ignored]; with Options.Strict they are errors. The constants of this
// package limit the size of schemas.
//
// # What is never produced though JSON allows it
//
// Whitespace is at most one space after a comma, a colon or a bracket, or before a closing bracket. Except after a
// colon, it may also be a newline and an indentation of up to [MaxIndent] spaces. The document begins with its first
// byte and ends with its last. Documents nest at most [MaxDepth] deep. Integers have no point and no exponent; numbers
// are short enough for a float64, and those with bounds have no exponent. Strings with a pattern or format, enum values
// and property names are spelled without needless escapes. Names that the schema does not list can repeat, as JSON
// allows; listed names cannot.
package grammar
