package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple parses an expression, or several separated by commas, which make a tuple. withIf states whether an inline if is
// allowed.
func (p *parser) tuple(withIf bool) expr {
	at := p.peek().at
	first := p.expression(withIf)
	if !p.isOp(",") {
		return first
	}
	items := []expr{first}
	for p.skipOp(",") {
		if p.atTupleEnd() {
			break
		}
		items = append(items, p.expression(withIf))
	}
	return &listExpr{node{at}, items, true}
}

func (p *parser) atTupleEnd() bool {
	switch p.peek().kind {
	case tokBlockEnd, tokVarEnd, tokEOF:
		return true
	}
	return p.isOp(")")
}

// expression parses one expression without top-level commas.
func (p *parser) expression(withIf bool) expr {
	p.enter()
	defer p.leave()
	e := p.or()
	for withIf && p.isName("if") {
		c := &condExpr{node: node{p.next().at}, yes: e}
		c.test = p.or()
		if p.skipName("else") {
			c.no = p.expression(true)
		}
		e = c
	}
	return e
}

// leftAssoc parses a left-associative chain of operands separated by the operators ops.
func (p *parser) leftAssoc(operand func() expr, kind tokenKind, ops ...string) expr {
	left := operand()
	for {
		t := p.peek()
		if t.kind != kind || !slices.Contains(ops, t.text) {
			return left
		}
		p.next()
		left = &binaryExpr{node{t.at}, t.text, left, operand()}
	}
}

func (p *parser) or() expr  { return p.leftAssoc(p.and, tokName, "or") }
func (p *parser) and() expr { return p.leftAssoc(p.not, tokName, "and") }

func (p *parser) not() expr {
	if !p.isName("not") {
		return p.compare()
	}
	p.enter()
	defer p.leave()
	return &unaryExpr{node{p.next().at}, "not", p.not()}
}

func (p *parser) compare() expr {
	first := p.sum()
	c := &compareExpr{node: node{p.peek().at}, first: first}
	for op := p.comparison(); op != ""; op = p.comparison() {
		c.ops, c.rest = append(c.ops, op), append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return first
	}
	return c
}

// comparison consumes a comparison operator and returns it, or returns "".
func (p *parser) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
		p.next()
		return t.text
	case p.skipName("in"):
		return "in"
	case p.isName("not") && p.tokens[p.at+1].kind == tokName && p.tokens[p.at+1].text == "in":
		p.at += 2
		return "not in"
	}
	return ""
}

func (p *parser) sum() expr     { return p.leftAssoc(p.concat, tokOperator, "+", "-") }
func (p *parser) product() expr { return p.leftAssoc(p.power, tokOperator, "*", "/", "//", "%") }
func (p *parser) power() expr {
	return p.leftAssoc(func() expr { return p.unary(true) }, tokOperator, "**")
}

func (p *parser) concat() expr {
	at := p.peek().at
	parts := []expr{p.product()}
	for p.skipOp("~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &concatExpr{node{at}, parts}
}

// unary parses a sign, an operand and its postfix parts. A sign has precedence over filters: -1|abs is (-1)|abs.
func (p *parser) unary(withFilter bool) expr {
	p.enter()
	defer p.leave()
	var e expr
	if t := p.peek(); p.isOp("-") || p.isOp("+") {
		p.next()
		e = &unaryExpr{node{t.at}, t.text, p.unary(false)}
	} else {
		e = p.primary()
	}
	if e = p.postfix(e); withFilter {
		e = p.filtersAndTests(e)
	}
	return e
}

func (p *parser) primary() expr {
	t := p.next()
	n := node{t.at}
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{n, true}
		case "false", "False":
			return &constExpr{n, false}
		case "none", "None":
			return &constExpr{n, nil}
		}
		return &nameExpr{n, t.text}
	case tokString:
		text := t.text
		for p.peek().kind == tokString { // adjacent string literals are concatenated
			text += p.next().text
		}
		return &constExpr{n, text}
	case tokInteger:
		v, err := strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), intBase(t.text), 64)
		if err != nil {
			p.fail(syntaxf(t.at, "integer %s does not fit 64 bits", t.text))
		}
		return &constExpr{n, v}
	case tokFloat:
		v, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			p.fail(syntaxf(t.at, "number %s is out of range", t.text))
		}
		return &constExpr{n, v}
	case tokOperator:
		switch t.text {
		case "(":
			return parenthesised(p, n)
		case "[":
			return &listExpr{n, parseItems(p, "]"), false}
		case "{":
			return parseDict(p, n)
		}
	}
	p.fail(syntaxf(t.at, "expected an expression, found %v", t))
	return &constExpr{n, nil}
}

// intBase returns the base for strconv.ParseInt: 0, which means by prefix, for 0x, 0o and 0b; otherwise 10, also after
// a leading 0.
func intBase(text string) int {
	if len(text) > 1 && text[0] == '0' && !isDigit(text[1]) && text[1] != '_' {
		return 0
	}
	return 10
}

func parenthesised(p *parser, n node) expr {
	if p.skipOp(")") {
		return &listExpr{n, nil, true}
	}
	e := p.tuple(true)
	p.expectOp(")")
	return e
}

// parseItems parses expressions separated by commas, up to the closing bracket end.
func parseItems(p *parser, end string) []expr {
	var items []expr
	for p.more(end, len(items) == 0) {
		items = append(items, p.expression(true))
	}
	return items
}

func parseDict(p *parser, n node) expr {
	d := &dictExpr{node: n}
	for p.more("}", len(d.keys) == 0) {
		d.keys = append(d.keys, p.expression(true))
		p.expectOp(":")
		d.values = append(d.values, p.expression(true))
	}
	return d
}
