package grammar

// Limits on compilation. They limit the work of one request for any schema; each is far above what people write by
// hand.
const (
	MaxSchemaBytes   = 1 << 20
	MaxSchemaDepth   = 128     // maximum nesting of the schema's own JSON
	MaxNodes         = 20_000  // distinct positions of values, after references and alternatives are resolved
	MaxMembers       = 1 << 17 // properties, tuple items and enum values, after references are resolved
	MaxProperties    = 1024    // properties of one object
	MaxEnumValues    = 1 << 16 // values of one enum
	MaxAlternatives  = 256     // alternatives of one value, after anyOf, oneOf and allOf are combined
	MaxPatternBytes  = 4096
	MaxPatternStates = 4096 // states of the automaton of one pattern, lengths included
	MaxMultiple      = 1 << 31
)

// Limits on documents. They are part of the language: no document beyond them is produced.
const (
	MaxDepth          = 128 // nested objects and arrays
	MaxIndent         = 40  // spaces after a newline, or twice the number of tabs
	MaxIntegerDigits  = 18  // digits before the point of a number, unless a bound of the schema needs more
	MaxFractionDigits = 17  // digits after the point of a number without bounds
	boundedFraction   = 10  // digits after the point of a number with bounds, unless a bound has more
	maxBoundDigits    = 40  // digits of a bound, before or after the point
)

// Limits on caches. Above them caches are emptied; results do not change.
const (
	maxArenaBytes  = 12 << 20 // bytes of one grammar's arena: about 8000 states with few readings
	maxMaskBytes   = 20 << 20 // bytes of the leaf masks of a vocabulary, and again of a grammar
	maxConfigMasks = 256      // masks of states with one reading, and again with several; up to 16 KB each
)

// Limits on ambiguity: the number of readings of one document that are kept at a time, see Grammar.Narrowed.
const (
	maxConfigs    = 1024 // four readings for each of MaxAlternatives objects
	maxWideLeaves = 32   // readings among them in different leaves whose masks are costly
)
