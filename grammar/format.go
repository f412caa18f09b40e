package grammar

import (
	"errors"
	"math/big"
	"slices"
	"sync"
)

// errFormat is converted by callers to a SchemaError with the JSON pointer.
var errFormat = errors.New("unknown format")

// format is the set of strings of at most most characters that match all patterns and do not match the pattern not,
// unless it is empty.
type format struct {
	patterns []string
	not      string
	most     uint64

	once sync.Once
	dfa  *runeDFA // automaton of the patterns; its lookup tables stay empty, see method automaton
	err  error
}

// Parts of the formats below. Only dates that exist are allowed: 29 February only in leap years.
const (
	dateRule = `(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))` +
		`|(\d\d(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)-02-29)`
	timeRule  = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`
	octetRule = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4Rule  = octetRule + `(\.` + octetRule + `){3}`
	labelRule = `[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	hostRule  = labelRule + `(\.` + labelRule + `)*`

	// IPv6 addresses of RFC 3986, appendix A: groups of digits, and at most one :: in place of groups of zeros.
	hexRule  = `[0-9A-Fa-f]{1,4}`
	lowRule  = `(` + hexRule + `:` + hexRule + `|` + ipv4Rule + `)` // last 32 bits
	ipv6Rule = `((` + hexRule + `:){6}` + lowRule +
		`|::(` + hexRule + `:){5}` + lowRule +
		`|(` + hexRule + `)?::(` + hexRule + `:){4}` + lowRule +
		`|((` + hexRule + `:){0,1}` + hexRule + `)?::(` + hexRule + `:){3}` + lowRule +
		`|((` + hexRule + `:){0,2}` + hexRule + `)?::(` + hexRule + `:){2}` + lowRule +
		`|((` + hexRule + `:){0,3}` + hexRule + `)?::` + hexRule + `:` + lowRule +
		`|((` + hexRule + `:){0,4}` + hexRule + `)?::` + lowRule +
		`|((` + hexRule + `:){0,5}` + hexRule + `)?::` + hexRule +
		`|((` + hexRule + `:){0,6}` + hexRule + `)?::)`

	// Addresses of RFC 5321, section 4.1.2: a local part of atoms and dots, or in quotes; a domain or an address.
	atomRule   = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	quotedRule = `"([ !#-\[\]-~]{0,62}|([ !#-\[\]-~]|\\[ -~]){0,31})"`
	mailRule   = `^(` + atomRule + `(\.` + atomRule + `)*|` + quotedRule + `)@(` + hostRule +
		`|\[` + ipv4Rule + `\]|\[IPv6:` + ipv6Rule + `\])$`

	// Parts of RFC 3986, appendix A.
	plainRule = `[A-Za-z0-9._~!$&'()*+,;=-]`
	byteRule  = `%[0-9A-Fa-f]{2}`
	regRule   = `(` + plainRule + `|` + byteRule + `)*`
	userRule  = `(` + plainRule + `|:|` + byteRule + `)*`
	pathChar  = `([A-Za-z0-9._~!$&'()*+,;=:@-]|` + byteRule + `)`
	uriRule   = `^[A-Za-z][A-Za-z0-9+.-]*:(//(` + userRule + `@)?(\[` + ipv6Rule + `\]|` + regRule + `)(:\d{0,5})?(/` +
		pathChar + `*)*|/(` + pathChar + `+(/` + pathChar + `*)*)?|` + pathChar + `+(/` + pathChar + `*)*|)` +
		`(\?([/?]|` + pathChar + `)*)?(#([/?]|` + pathChar + `)*)?$`
	// hostless matches URIs without a host, for schemes that require one.
	hostless = `^(?i:https?|ftp|wss?):($|[^/]|/$|/[^/]|//([^/?#@]*@)?($|[:/?#]))`
)

// formats holds the formats of strings. Each accepts a subset of the strings that its RFC allows: uri has ports of up
// to five digits and no IPvFuture, email has no general address literals.
var formats = map[string]*format{
	"date":      {patterns: []string{`^` + dateRule + `$`}},
	"time":      {patterns: []string{`^` + timeRule + `$`}},
	"date-time": {patterns: []string{`^` + dateRule + `T` + timeRule + `$`}},
	"duration": {patterns: []string{`^P(\d{1,9}W|\d{1,9}Y(\d{1,9}M)?(\d{1,9}D)?|\d{1,9}M(\d{1,9}D)?|\d{1,9}D|` +
		`(\d{1,9}D)?T(\d{1,9}H(\d{1,9}M)?(\d{1,9}S)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S))$`}},
	"uuid":     {patterns: []string{`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`}},
	"email":    {patterns: []string{mailRule, `^([^"@]{1,64}|"(\\.|[^\\"])*")@`}, most: 254},
	"hostname": {patterns: []string{`^` + hostRule + `$`}, most: 253},
	"ipv4":     {patterns: []string{`^` + ipv4Rule + `$`}},
	"ipv6":     {patterns: []string{`^` + ipv6Rule + `$`}},
	"uri":      {patterns: []string{uriRule}, not: hostless},
}

// automaton returns a new automaton with the same states: its lookup tables are not shared between grammars.
func (f *format) automaton() (*runeDFA, error) {
	f.once.Do(func() { f.dfa, f.err = f.compile() })
	if f.err != nil {
		return nil, f.err
	}
	return &runeDFA{edges: f.dfa.edges, accept: f.dfa.accept}, nil
}

// compile compiles the automaton of a format. Formats are compiled once, so their compilation does not count for the
// limit of a schema.
func (f *format) compile() (d *runeDFA, err error) {
	e := &effort{left: maxEffort}
	for _, pattern := range f.patterns {
		next, err := compilePattern(pattern, e)
		if err == nil && d != nil {
			next, err = d.intersect(next, e)
		}
		if err != nil {
			return nil, err
		}
		d = next
	}
	if f.not != "" {
		no, err := compilePattern(f.not, e)
		if err != nil {
			return nil, err
		}
		return d.except(no, e)
	}
	return d, nil
}

// formatLength returns the maximum number of characters in strings of a format.
func formatLength(name string) uint64 {
	if f := formats[name]; f != nil && f.most > 0 {
		return f.most
	}
	return noLimit
}

// integerFormats holds the formats of OpenAPI that limit a number; they do not apply to strings.
var integerFormats = map[string]bounds{
	"int32": {lo: big.NewRat(-1<<31, 1), hi: big.NewRat(1<<31-1, 1)},
	"int64": {lo: big.NewRat(-1<<63, 1), hi: big.NewRat(1<<63-1, 1)},
}

// floatFormats holds the formats of OpenAPI that every number produced here satisfies.
var floatFormats = map[string]bool{"float": true, "double": true}

func numericFormat(keyword, text string) bool {
	_, ok := integerFormats[text]
	return keyword == "format" && (ok || floatFormats[text])
}

func sortedFormats() []string {
	var names []string
	for name := range formats {
		names = append(names, name)
	}
	for name := range integerFormats {
		names = append(names, name)
	}
	for name := range floatFormats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
