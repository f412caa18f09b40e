package jinja

import "slices"

// maxNesting is the maximum depth of the syntax tree.
const maxNesting = 200

// parser builds statements from tokens. After an error its methods return incomplete trees.
type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int   // number of enclosing for loops; break and continue need one
	err    error // first error; the parser then moves to the end of the tokens, so that all parsing ends
}

// fail stores the first error.
func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.at = len(p.tokens) - 1
}

func (p *parser) expected(what string) {
	p.fail(syntaxf(p.peek().at, "expected %s, found %v", what, p.peek()))
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *parser) isOp(op string) bool {
	t := p.peek()
	return t.kind == tokOperator && t.text == op
}

func (p *parser) isName(name string) bool {
	t := p.peek()
	return t.kind == tokName && t.text == name
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.expected("'" + op + "'")
	}
}

func (p *parser) expectName() token {
	if p.peek().kind != tokName {
		p.expected("a name")
	}
	return p.next()
}

func (p *parser) expectEnd(kind tokenKind, what string) {
	if p.peek().kind != kind {
		p.expected(what)
	}
	p.next()
}

func (p *parser) blockEnd() { p.expectEnd(tokBlockEnd, "the end of the tag") }

// more reports whether another item follows in a list. It consumes the closing operator, or the comma before every item
// except the first.
func (p *parser) more(end string, first bool) bool {
	if p.skipOp(end) {
		return false
	}
	if !first {
		p.expectOp(",")
		if p.skipOp(end) {
			return false
		}
	}
	return p.err == nil
}

// enter increments the nesting depth and fails above maxNesting; leave decrements it.
func (p *parser) enter() {
	p.depth++
	if p.depth > maxNesting {
		p.fail(&fault{p.peek().at, limitf("the template is nested deeper than %d levels", maxNesting)})
	}
}

func (p *parser) leave() { p.depth-- }

// body parses statements up to a tag whose first word is one of ends, whose first word it consumes. Without ends it
// parses to the end of the template.
func (p *parser) body(ends ...string) ([]stmt, string) {
	p.enter()
	defer p.leave()
	var out []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.fail(syntaxf(t.at, "expected {%% %s %%}, found %v", ends[len(ends)-1], t))
			}
			return out, ""
		case tokText:
			out = append(out, &textStmt{node{t.at}, t.text})
		case tokVarBegin:
			e := p.tuple(true)
			p.expectEnd(tokVarEnd, "'}}'")
			out = append(out, &outputStmt{node{t.at}, e})
		case tokBlockBegin:
			word := p.expectName()
			if slices.Contains(ends, word.text) {
				return out, word.text
			}
			out = append(out, parseStatement(p, word))
		default:
			p.fail(syntaxf(t.at, "unexpected %v", t))
		}
	}
}

func parseStatement(p *parser, word token) stmt {
	n := node{word.at}
	switch word.text {
	case "if":
		return ifStatement(p, n)
	case "for":
		return forStatement(p, n)
	case "set":
		return setStatement(p, n)
	case "macro":
		return macroStatement(p, n)
	case "call":
		return callStatement(p, n)
	case "with":
		return withStatement(p, n)
	case "filter":
		return filterStatement(p, n)
	case "generation":
		return &groupStmt{n, simpleBody(p, "endgeneration")}
	case "break", "continue":
		if p.loops == 0 {
			p.fail(syntaxf(word.at, "%s outside of a loop", word.text))
		}
		p.blockEnd()
		if word.text == "break" {
			return &breakStmt{n}
		}
		return &continueStmt{n}
	case "include", "import", "from", "extends", "block", "autoescape", "do", "trans":
		p.fail(unsupportedf(word.at, "the %s tag", word.text))
	default:
		p.fail(syntaxf(word.at, "unknown tag '%s'", word.text))
	}
	return nil
}

// simpleBody parses the end of the opening tag, a body, and a closing tag with only its name.
func simpleBody(p *parser, end string) []stmt {
	p.blockEnd()
	body, _ := p.body(end)
	p.blockEnd()
	return body
}

func ifStatement(p *parser, n node) stmt {
	s := &ifStmt{node: n}
	for {
		s.tests = append(s.tests, p.tuple(false))
		p.blockEnd()
		body, end := p.body("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		switch end {
		case "elif":
		case "else":
			s.other = simpleBody(p, "endif")
			return s
		default:
			p.blockEnd()
			return s
		}
	}
}

func forStatement(p *parser, n node) stmt {
	s := &forStmt{node: n}
	s.targets = parseTargets(p, false)
	if !p.skipName("in") {
		p.expected("'in'")
	}
	// An inline if would consume the loop's filter, so it is not allowed here.
	s.iter = p.tuple(false)
	if p.skipName("if") {
		s.filter = p.expression(true)
	}
	if p.isName("recursive") {
		p.fail(unsupportedf(p.peek().at, "recursive loops"))
	}
	p.blockEnd()
	p.loops++
	body, end := p.body("else", "endfor")
	p.loops--
	s.body = body
	if end == "else" {
		s.other = simpleBody(p, "endfor")
	} else {
		p.blockEnd()
	}
	return s
}

// parseTargets parses "a", "a, b" or "(a, b)"; attrs allows attributes of namespaces.
func parseTargets(p *parser, attrs bool) targets {
	var ts targets
	paren := p.skipOp("(")
	for {
		ts.list = append(ts.list, parseTarget(p, attrs))
		if !p.skipOp(",") {
			break
		}
		ts.unpack = true
		if p.isName("in") || p.isOp("=") || p.isOp(")") {
			break
		}
	}
	if paren {
		p.expectOp(")")
	}
	return ts
}

func parseTarget(p *parser, attrs bool) target {
	name := p.expectName()
	if reserved[name.text] {
		p.fail(syntaxf(name.at, "cannot assign to '%s'", name.text))
	}
	t := target{at: name.at, name: name.text}
	if attrs && p.skipOp(".") {
		t.attr = p.expectName().text
	}
	return t
}

func setStatement(p *parser, n node) stmt {
	ts := parseTargets(p, true)
	if p.skipOp("=") {
		value := p.tuple(true)
		p.blockEnd()
		return &setStmt{n, ts, value}
	}
	if ts.unpack {
		p.expected("'='")
	}
	filter := p.filters(nil)
	return &setBlockStmt{n, ts.list[0], filter, simpleBody(p, "endset")}
}

// reserved lists the names of constants, which cannot be assigned.
var reserved = map[string]bool{
	"true": true, "false": true, "none": true, "True": true, "False": true, "None": true,
}
