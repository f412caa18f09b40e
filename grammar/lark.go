package grammar

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ErrLark means that a grammar in Lark's notation cannot be converted to a regular expression.
var ErrLark = errors.New("grammar: the Lark grammar cannot be enforced")

// LarkPattern converts a grammar in Lark's notation to a regular expression of the whole text, by substituting all
// rules and terminals into the rule start. Recursive rules, %ignore, templates and imported terminals are refused,
// except imports of some of Lark's common terminals.
func LarkPattern(source string) (string, error) {
	l := &lark{rules: map[string]string{}, done: map[string]string{}, open: map[string]bool{}}
	if err := l.read(source); err != nil {
		return "", fmt.Errorf("%w: %w", ErrLark, err)
	}
	pattern, err := l.rule("start")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrLark, err)
	}
	return pattern, nil
}

// larkCommon maps the supported terminals of Lark's module common to regular expressions.
var larkCommon = map[string]string{
	"LF": `\n`, "CR": `\r`, "NEWLINE": `(?:\r?\n)+`, "WS": `[ \t\f\r\n]+`, "WS_INLINE": `[ \t]+`,
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9a-fA-F]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"LCASE_LETTER": `[a-z]`, "UCASE_LETTER": `[A-Z]`, "LETTER": `[A-Za-z]`, "WORD": `[A-Za-z]+`,
	"CNAME": `[_A-Za-z][_A-Za-z0-9]*`, "ESCAPED_STRING": `"(?:[^"\\\n]|\\.)*"`,
}

// lark is a grammar that is being converted to a pattern.
type lark struct {
	rules map[string]string // right sides of rules by name
	done  map[string]string // patterns of rules
	open  map[string]bool   // rules whose pattern is being built
}

var (
	larkRule   = regexp.MustCompile(`^[?!]*(_?[a-z][a-z0-9_]*|_?[A-Z][A-Z0-9_]*)(?:\.-?\d+)?\s*:(.*)$`)
	larkImport = regexp.MustCompile(`^%import\s+common\.([A-Z_]+)(?:\s*->\s*([A-Z_]+))?$`)
)

// read collects the rules. A line that begins with a bar, or is indented, continues the previous rule.
func (l *lark) read(source string) error {
	last := ""
	for n, line := range strings.Split(source, "\n") {
		line = strings.TrimRight(stripLarkComment(line), " \t\r")
		text := strings.TrimSpace(line)
		switch m := larkRule.FindStringSubmatch(line); {
		case text == "":
		case m != nil:
			last = m[1]
			if _, twice := l.rules[last]; twice {
				return fmt.Errorf("line %d: %s is defined twice; define each rule once", n+1, last)
			}
			l.rules[last] = m[2]
		case text[0] == '%':
			im := larkImport.FindStringSubmatch(text)
			if im == nil || larkCommon[im[1]] == "" {
				return fmt.Errorf("line %d: the directive %.60q is not supported", n+1, text)
			}
			name := im[1]
			if im[2] != "" {
				name = im[2]
			}
			l.done[name] = larkCommon[im[1]]
		case last != "" && (text[0] == '|' || line[0] == ' ' || line[0] == '\t'):
			l.rules[last] += " " + text
		default:
			return fmt.Errorf("line %d: %.60q is not a rule", n+1, text)
		}
	}
	return nil
}

// stripLarkComment removes a comment. Two slashes inside a string or a regular expression do not begin a comment.
func stripLarkComment(line string) string {
	if strings.HasPrefix(strings.TrimSpace(line), "//") {
		return ""
	}
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"', '/':
			if strings.HasPrefix(line[i:], "//") {
				return line[:i]
			}
			if i = larkEnd(line, i); i < 0 {
				return line
			}
		}
	}
	return line
}

// larkEnd returns the end of the string or the regular expression that begins at i, or -1 if it does not end.
func larkEnd(s string, i int) int {
	for j := i + 1; j < len(s); j++ {
		switch s[j] {
		case '\\':
			j++
		case s[i]:
			return j
		}
	}
	return -1
}

// rule returns the pattern of a rule or a terminal.
func (l *lark) rule(name string) (string, error) {
	if p, ok := l.done[name]; ok {
		return p, nil
	}
	source, ok := l.rules[name]
	switch {
	case !ok:
		return "", fmt.Errorf("%s is not defined", name)
	case l.open[name]:
		return "", fmt.Errorf("rule %s refers to itself; recursive rules are not supported", name)
	}
	l.open[name] = true
	e := &larkExpression{lark: l, text: source}
	pattern, err := e.alternatives()
	if e.skip(); err == nil && e.at < len(e.text) {
		err = fmt.Errorf("syntax error at %.40q", e.text[e.at:])
	}
	if err == nil && len(pattern) > MaxPatternBytes {
		err = fmt.Errorf("as a regular expression the rules take more than %d bytes, which is the "+
			"limit", MaxPatternBytes)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	delete(l.open, name)
	l.done[name] = "(?:" + pattern + ")"
	return l.done[name], nil
}

// larkExpression parses the right side of one rule.
type larkExpression struct {
	*lark
	text string
	at   int
}

func (e *larkExpression) skip() {
	for e.at < len(e.text) && (e.text[e.at] == ' ' || e.text[e.at] == '\t') {
		e.at++
	}
}

// next skips spaces and returns the next character without consuming it, or 0 at the end.
func (e *larkExpression) next() byte {
	if e.skip(); e.at == len(e.text) {
		return 0
	}
	return e.text[e.at]
}

var larkAlias = regexp.MustCompile(`^->\s*[a-z_][a-z0-9_]*`)

// alternatives parses sequences separated by bars.
func (e *larkExpression) alternatives() (string, error) {
	var list []string
	for {
		one, err := e.sequence()
		if err != nil {
			return "", err
		}
		list = append(list, one)
		if e.next() == '-' {
			e.at += len(larkAlias.FindString(e.text[e.at:]))
		}
		if e.next() != '|' {
			return strings.Join(list, "|"), nil
		}
		e.at++
	}
}

// sequence parses items up to a bar, a closing bracket or an alias.
func (e *larkExpression) sequence() (string, error) {
	var b strings.Builder
	for {
		switch e.next() {
		case 0, '|', ')', ']', '-':
			return b.String(), nil
		}
		item, err := e.item()
		if err != nil {
			return "", err
		}
		repeated, err := e.repeat(item)
		if err != nil {
			return "", err
		}
		b.WriteString(repeated)
	}
}

var (
	larkName  = regexp.MustCompile(`^_?[A-Za-z][A-Za-z0-9_]*`)
	larkTimes = regexp.MustCompile(`^~\s*(\d+)(?:\s*\.\.\s*(\d+))?`)
	larkRange = regexp.MustCompile(`^"(\\.|[^"\\])"\s*\.\.\s*"(\\.|[^"\\])"`)
)

// item parses one item without its repetition operator.
func (e *larkExpression) item() (string, error) {
	rest := e.text[e.at:]
	switch c := rest[0]; {
	case c == '(' || c == '[':
		e.at++
		inner, err := e.alternatives()
		if err != nil {
			return "", err
		}
		closing, times := byte(')'), ""
		if c == '[' {
			closing, times = ']', "?"
		}
		if e.next() != closing {
			return "", fmt.Errorf("%q is not closed; add the closing character", c)
		}
		e.at++
		return "(?:" + inner + ")" + times, nil
	case larkRange.MatchString(rest):
		m := larkRange.FindStringSubmatch(rest)
		e.at += len(m[0])
		return "[" + regexp.QuoteMeta(larkText(m[1])) + "-" + regexp.QuoteMeta(larkText(m[2])) + "]", nil
	case c == '"' || c == '/':
		return e.literal(c)
	case larkName.MatchString(rest):
		name := larkName.FindString(rest)
		if e.at += len(name); strings.HasPrefix(e.text[e.at:], "{") {
			return "", fmt.Errorf("templates such as %s{...} are not supported", name)
		}
		return e.rule(name)
	}
	return "", fmt.Errorf("syntax error at %.40q", rest)
}

// literal parses a string or a regular expression with its flags.
func (e *larkExpression) literal(quote byte) (string, error) {
	end := larkEnd(e.text, e.at)
	if end < 0 {
		return "", fmt.Errorf("%.40q is not closed", e.text[e.at:])
	}
	body := e.text[e.at+1 : end]
	e.at = end + 1
	flags := ""
	for e.at < len(e.text) && strings.IndexByte("imsx", e.text[e.at]) >= 0 {
		flags += e.text[e.at : e.at+1]
		e.at++
	}
	if strings.ContainsAny(flags, "mx") {
		return "", fmt.Errorf("the flags %q of a regular expression are not supported", flags)
	}
	if quote == '"' {
		body = regexp.QuoteMeta(larkText(body))
	} else {
		body = strings.ReplaceAll(body, `\/`, "/")
	}
	return "(?" + flags + ":" + body + ")", nil
}

// larkText returns the text of a string literal, with its escapes replaced.
func larkText(body string) string {
	if text, err := strconv.Unquote(`"` + body + `"`); err == nil {
		return text
	}
	return body
}

// repeat parses the repetition operator of an item.
func (e *larkExpression) repeat(item string) (string, error) {
	if e.at == len(e.text) {
		return item, nil
	}
	switch c := e.text[e.at]; c {
	case '?', '*', '+':
		e.at++
		return "(?:" + item + ")" + string(c), nil
	case '~':
		m := larkTimes.FindStringSubmatch(e.text[e.at:])
		if m == nil {
			return "", fmt.Errorf("syntax error at %.40q", e.text[e.at:])
		}
		e.at += len(m[0])
		times := "{" + m[1]
		if m[2] != "" {
			times += "," + m[2]
		}
		return "(?:" + item + ")" + times + "}", nil
	}
	return item, nil
}
