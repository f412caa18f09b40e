package server

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"sparrow/internal/textfile"
)

// Limit holds the limits of one tenant. Zero means no limit.
type Limit struct {
	Requests int     // concurrent requests
	Tokens   int     // prompt and output tokens per minute
	Share    float64 // maximum share of the running sequences, above 0 and up to 1
}

// everyTenant is the name for limits of tenants that are not listed; they apply to each tenant separately.
const everyTenant = "*"

// Limits holds the limits of tenants by name.
type Limits struct {
	byName map[string]Limit
}

// LoadLimits parses the value of the flag --tenant-limits: a list of limits in the format of [ReadLimits], or the name
// of a file with such a list.
func LoadLimits(given string) (*Limits, error) {
	if strings.Contains(given, "=") {
		return ReadLimits(strings.NewReader(given))
	}
	f, err := textfile.Open(given)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; want a file, or limits such as 'team-a requests=8 tokens=60000 share=0.5; "+
			"* requests=2'", ErrLimits, err)
	}
	defer f.Close()
	l, err := ReadLimits(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", given, err)
	}
	return l, nil
}

// maxLimitsBytes is the maximum bytes of a list of limits.
const maxLimitsBytes = 1 << 20

// ReadLimits reads one tenant per line; semicolons may replace line ends. A line is the name of a tenant and limits in
// any order, separated by spaces or commas: requests=8 (concurrent requests), tokens=60000 or 60000/min (prompt and
// output tokens per minute), share=0.5 or 50% (of the running sequences). A colon may follow the name. The name * means
// every tenant without its own line. Empty lines and lines that start with # are skipped.
func ReadLimits(r io.Reader) (*Limits, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxLimitsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLimits, err)
	}
	if len(text) > maxLimitsBytes {
		return nil, fmt.Errorf("%w: the list is longer than %d bytes, which is the limit", ErrLimits, maxLimitsBytes)
	}
	l := &Limits{byName: map[string]Limit{}}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for entry := range strings.SplitSeq(line, ";") {
			if strings.TrimSpace(entry) == "" {
				continue
			}
			if err := l.add(entry); err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrLimits, i+1, err)
			}
		}
	}
	if len(l.byName) == 0 {
		return nil, fmt.Errorf("%w: the list has no limits; want 'name requests=8 tokens=60000 share=0.5'", ErrLimits)
	}
	return l, nil
}

// add parses the limits of one tenant.
func (l *Limits) add(entry string) error {
	separates := func(r rune) bool { return r == ' ' || r == '\t' || r == ',' || r == '\r' }
	entry = strings.TrimFunc(entry, separates)
	at := strings.IndexFunc(entry, func(r rune) bool { return separates(r) || r == ':' })
	if at < 0 {
		return fmt.Errorf("%q has no limits; want 'name requests=8 tokens=60000 share=0.5'", entry)
	}
	name := entry[:at]
	var limit Limit
	for _, word := range strings.FieldsFunc(strings.TrimPrefix(entry[at:], ":"), separates) {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "requests":
			limit.Requests, err = parseCount(value)
		case "tokens":
			limit.Tokens, err = parseCount(strings.TrimSuffix(value, "/min"))
		case "share":
			limit.Share, err = parseShare(value)
		default:
			err = fmt.Errorf("is not a limit; want requests, tokens or share")
		}
		if err != nil {
			return fmt.Errorf("%s: %.40q: %w", name, word, err)
		}
	}
	if _, twice := l.byName[name]; twice || name == "" || limit == (Limit{}) {
		return fmt.Errorf("tenant %q is named twice, has no name or no limit; want 'name requests=8 tokens=60000 "+
			"share=0.5' once for each", name)
	}
	l.byName[name] = limit
	return nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("want a number from 1 to %d", math.MaxInt32)
	}
	return n, nil
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("want a share above 0 and up to 1, or 100%%")
	}
	return v, nil
}

// check returns an error if a tenant with limits has no key.
func (l *Limits) check(k *Keys) error {
	for name := range l.byName {
		if name != everyTenant && !slices.Contains(k.tenants(), name) {
			return fmt.Errorf("Limits (--tenant-limits): no key belongs to tenant %q; name tenants of the file of "+
				"keys (--api-keys), or * for all", name)
		}
	}
	return nil
}

// of returns the limits of a tenant.
func (l *Limits) of(tenant string) Limit {
	if l == nil {
		return Limit{}
	}
	if own, ok := l.byName[tenant]; ok {
		return own
	}
	return l.byName[everyTenant]
}
