package jinja

import "slices"

// maxNesting bounds the depth of the syntax tree that recursive parsing may build.
const maxNesting = 200

// parser builds statements from tokens.
type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int // enclosing for loops, for break and continue
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

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return syntaxf(p.peek().at, "expected '%s', found %v", op, p.peek())
	}
	return nil
}

func (p *parser) expectName() (token, error) {
	if p.peek().kind != tokName {
		return token{}, syntaxf(p.peek().at, "expected a name, found %v", p.peek())
	}
	return p.next(), nil
}

func (p *parser) blockEnd() error {
	if p.peek().kind != tokBlockEnd {
		return syntaxf(p.peek().at, "expected the end of the tag, found %v", p.peek())
	}
	p.next()
	return nil
}

// enter counts a level of nesting; leave undoes it.
func (p *parser) enter() error {
	p.depth++
	if p.depth > maxNesting {
		return &fault{p.peek().at, limitf("nested deeper than %d levels", maxNesting)}
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// body parses statements up to a tag whose first word is one of ends, and takes that word but not the rest of the tag.
// With no ends it parses to the end of the template.
func (p *parser) body(ends ...string) ([]stmt, string, error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	var out []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, "", syntaxf(t.at, "expected {%% %s %%}, found %v", ends[len(ends)-1], t)
			}
			return out, "", nil
		case tokText:
			out = append(out, &textStmt{node{t.at}, t.text})
		case tokVarBegin:
			e, err := p.tuple(true)
			if err != nil {
				return nil, "", err
			}
			if p.peek().kind != tokVarEnd {
				return nil, "", syntaxf(p.peek().at, "expected '}}', found %v", p.peek())
			}
			p.next()
			out = append(out, &outputStmt{node{t.at}, e})
		case tokBlockBegin:
			word, err := p.expectName()
			if err != nil {
				return nil, "", err
			}
			if slices.Contains(ends, word.text) {
				return out, word.text, nil
			}
			s, err := p.statement(word)
			if err != nil {
				return nil, "", err
			}
			out = append(out, s)
		default:
			return nil, "", syntaxf(t.at, "unexpected %v", t)
		}
	}
}

func (p *parser) statement(word token) (stmt, error) {
	n := node{word.at}
	switch word.text {
	case "if":
		return p.ifStatement(n)
	case "for":
		return p.forStatement(n)
	case "set":
		return p.setStatement(n)
	case "macro":
		return p.macroStatement(n)
	case "call":
		return p.callStatement(n)
	case "with":
		return p.withStatement(n)
	case "filter":
		return p.filterStatement(n)
	case "generation":
		body, err := p.simpleBody("endgeneration")
		return &groupStmt{n, body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, syntaxf(word.at, "%s outside of a loop", word.text)
		}
		if err := p.blockEnd(); err != nil {
			return nil, err
		}
		if word.text == "break" {
			return &breakStmt{n}, nil
		}
		return &continueStmt{n}, nil
	case "include", "import", "from", "extends", "block", "autoescape", "do", "trans":
		return nil, unsupportedf(word.at, "the %s tag", word.text)
	}
	return nil, syntaxf(word.at, "unknown tag '%s'", word.text)
}

// simpleBody takes the end of the opening tag, a body, and a closing tag with nothing else in it.
func (p *parser) simpleBody(end string) ([]stmt, error) {
	if err := p.blockEnd(); err != nil {
		return nil, err
	}
	body, _, err := p.body(end)
	if err != nil {
		return nil, err
	}
	return body, p.blockEnd()
}

func (p *parser) ifStatement(n node) (stmt, error) {
	s := &ifStmt{node: n}
	for word := "if"; ; {
		if word == "else" {
			other, err := p.simpleBody("endif")
			s.other = other
			return s, err
		}
		test, err := p.tuple(false)
		if err != nil {
			return nil, err
		}
		if err := p.blockEnd(); err != nil {
			return nil, err
		}
		body, end, err := p.body("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		if end == "endif" {
			return s, p.blockEnd()
		}
		word = end
	}
}

func (p *parser) forStatement(n node) (stmt, error) {
	s := &forStmt{node: n}
	var err error
	if s.targets, s.unpack, err = p.loopTargets(); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, syntaxf(p.peek().at, "expected 'in', found %v", p.peek())
	}
	// The condition of an inline if would swallow the loop's own filter, so it is not allowed here.
	if s.iter, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.filter, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, unsupportedf(p.peek().at, "recursive loops")
	}
	if err := p.blockEnd(); err != nil {
		return nil, err
	}
	p.loops++
	body, end, err := p.body("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		s.other, err = p.simpleBody("endfor")
		return s, err
	}
	return s, p.blockEnd()
}

// loopTargets takes "a", "a, b" or "(a, b)".
func (p *parser) loopTargets() (names []string, unpack bool, err error) {
	paren := p.skipOp("(")
	unpack = paren
	for {
		name, err := p.expectName()
		if err != nil {
			return nil, false, err
		}
		names = append(names, name.text)
		if !p.skipOp(",") {
			break
		}
		unpack = true
		if p.isName("in") || p.isOp(")") {
			break
		}
	}
	if paren {
		err = p.expectOp(")")
	}
	return names, unpack, err
}

func (p *parser) setStatement(n node) (stmt, error) {
	var targets []target
	unpack := false
	paren := p.skipOp("(")
	for {
		t, err := p.setTarget()
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
		if !p.skipOp(",") {
			break
		}
		unpack = true
		if p.isOp("=") || p.isOp(")") {
			break
		}
	}
	if paren {
		if err := p.expectOp(")"); err != nil {
			return nil, err
		}
	}
	if p.skipOp("=") {
		value, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return &setStmt{n, targets, unpack, value}, p.blockEnd()
	}
	if unpack || paren {
		return nil, syntaxf(p.peek().at, "expected '=', found %v", p.peek())
	}
	s := &setBlockStmt{node: n, target: targets[0]}
	var err error
	if p.isOp("|") {
		if s.filter, err = p.filters(nil); err != nil {
			return nil, err
		}
	}
	s.body, err = p.simpleBody("endset")
	return s, err
}

func (p *parser) setTarget() (target, error) {
	name, err := p.expectName()
	if err != nil {
		return target{}, err
	}
	if reserved[name.text] {
		return target{}, syntaxf(name.at, "cannot assign to '%s'", name.text)
	}
	t := target{at: name.at, name: name.text}
	if p.skipOp(".") {
		attr, err := p.expectName()
		if err != nil {
			return target{}, err
		}
		t.attr = attr.text
	}
	return t, nil
}

// reserved are the names that are constants in every expression.
var reserved = map[string]bool{
	"true": true, "false": true, "none": true, "True": true, "False": true, "None": true,
}
