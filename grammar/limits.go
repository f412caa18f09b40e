package grammar

// Limits on compilation. They limit the work of one request for any schema; each is far above what people write by
// hand.
const (
	MaxSchemaBytes   = 1 << 20
	MaxSchemaDepth   = 128     // nesting of the schema's own JSON
	MaxNodes         = 20_000  // distinct value positions after references and alternatives are resolved
	MaxMembers       = 1 << 17 // properties, tuple items and enum values, after the same
	MaxProperties    = 1024    // of one object
	MaxEnumValues    = 1 << 16 // of one enum
	MaxAlternatives  = 256     // of one value, after anyOf, oneOf and allOf are combined
	MaxPatternBytes  = 4096
	MaxPatternStates = 4096 // of the automaton of one pattern, lengths included
	MaxMultiple      = 1 << 31
)

// Limits on documents. They are part of the language: no document beyond them is produced.
const (
	MaxDepth          = 128 // objects and arrays inside each other
	MaxIndent         = 40  // spaces after a newline; or half as many tabs
	MaxIntegerDigits  = 18  // of a number, unless a bound of the schema needs more
	MaxFractionDigits = 17  // of a number without bounds
	boundedFraction   = 10  // of a number with bounds, unless a bound has more
	maxBoundDigits    = 40  // of a bound, before or after the point
)

// Limits on caches. Above them caches are emptied; results do not change.
const (
	maxArenaBytes  = 12 << 20 // of one grammar: some 8000 states with few readings
	maxMaskBytes   = 20 << 20 // of the leaf masks of one vocabulary, and again of one grammar
	maxConfigMasks = 256      // of one grammar, and again of its states with several readings; at most 16 KB each
)

// Limits on ambiguity: the number of readings of one document that are kept at a time, see Grammar.Narrowed.
const (
	maxConfigs    = 1024 // four for each of MaxAlternatives objects
	maxWideLeaves = 32   // different leaves among them whose masks are costly
)
