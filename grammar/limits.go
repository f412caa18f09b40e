package grammar

// Limits on compilation. They bound the time and memory of one request. Schemas written by hand stay far below them.
const (
	MaxSchemaBytes   = 1 << 20
	MaxSchemaDepth   = 128     // maximum nesting of the schema's own JSON
	MaxNodes         = 20_000  // distinct positions of values, after references and alternatives are resolved
	MaxMembers       = 1 << 17 // properties, tuple items and enum values, after references are resolved
	MaxProperties    = 1024    // properties of one object
	MaxEnumValues    = 1 << 16 // values of one enum
	MaxAlternatives  = 256     // alternatives of one value, after anyOf, oneOf and allOf are combined
	MaxPatternBytes  = 4096
	MaxPatternStates = 4096 // states of the automaton of one pattern, including length limits
	MaxMultiple      = 1 << 31
)

// Limits on documents. No document beyond them is produced.
const (
	MaxDepth          = 128 // nested objects and arrays
	MaxIndent         = 40  // spaces after a newline; a tab counts as two
	MaxIntegerDigits  = 18  // digits before the point of a number, unless a bound of the schema needs more
	MaxFractionDigits = 17  // digits after the point of a number without bounds
	boundedFraction   = 10  // digits after the point of a number with bounds, unless a bound has more
	maxBoundDigits    = 40  // digits of a bound, before the point and after it
)

// Maximum sizes of caches. A cache that exceeds its maximum is emptied; results do not change.
const (
	maxArenaBytes  = 12 << 20 // bytes of one grammar's arena: about 8000 states with few configs
	maxMaskBytes   = 20 << 20 // bytes of the leaf masks of a vocabulary, and of those of one grammar
	maxConfigMasks = 256      // masks of states with one config, and of states with several; up to 16 KB each
)

// Limits on ambiguity: the number of configs of one document that are kept, see Grammar.Narrowed.
const (
	maxConfigs    = 1024 // four configs for each of MaxAlternatives objects
	maxWideLeaves = 32   // of these, configs in different leaves whose masks are costly
)
