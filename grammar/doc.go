// Package grammar turns a JSON schema into a mask over tokens, so that whatever a model chooses, its output parses
// and satisfies the schema.
//
// In: a vocabulary, once ([NewTokens]); a schema ([Compile]) or none ([JSONObject]); then, token by token, what was
// chosen ([State.Accept]). Out: the tokens that may come next ([State.Mask]) and whether the document is complete
// ([State.Done]). It knows no model and no tokenizer's algorithm; a token is a number and the bytes it stands for.
//
// # How it works
//
// A schema becomes a graph of nodes, one per position of a value. A document in progress is a set of readings; a
// reading is a position in a leaf (a string, a number, a bracket: an automaton over bytes) above a stack of open
// objects and arrays. Nothing is built before it is needed: states appear as documents reach them.
//
// The mask of a leaf state is found by walking the vocabulary's trie once. Tokens that stay inside the leaf are
// allowed whatever surrounds it; the few that leave it are followed into what comes after. Masks are kept per leaf
// state, and those of strings, numbers and punctuation are shared by all grammars of a vocabulary, so most steps only
// copy a bitmap.
//
// # What is supported
//
//	type               one or a list
//	enum, const        written as in the schema; objects and arrays with free whitespace
//	properties         written in the order of the schema; optional ones can be skipped
//	required           names without a property are written after the others
//	additionalProperties   true, false or a schema; such members come last. Absent means true, as in JSON Schema;
//	                   Options.ClosedObjects changes that
//	items, prefixItems, minItems, maxItems
//	minLength, maxLength   in characters
//	pattern            RE2, unanchored unless anchored; \s, \S, \u and the dot as in ECMA-262
//	format             date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri; int32, int64, float,
//	                   double
//	minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf   exactly, for integers and decimals
//	anyOf, oneOf       both as anyOf: that exactly one alternative holds is not enforced
//	allOf              merged with its surroundings, keyword by keyword
//	$ref               inside the document, recursive or not
//	true, false        as schemas
//
// Annotations such as title, description and default are ignored. Every other keyword, and every unknown format, is
// an error that names its place: nothing is silently left unenforced. Schemas are limited in size, see the constants.
//
// # What is never produced though JSON allows it
//
// Whitespace is at most one space after a comma, a colon or a bracket, or before a closing bracket, or there (but not
// after a colon) a newline with indentation of up to [MaxIndent] spaces. The document begins with its first byte and
// ends with its last. Documents nest at most [MaxDepth] deep. Integers have no point and no exponent; numbers are
// short enough for a float64, and those with bounds have no exponent. Strings with a pattern or format, enum values
// and property names are spelled without needless escapes. Names that the schema does not list can repeat, as JSON
// allows; listed names cannot.
package grammar
