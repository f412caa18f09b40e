package jinja

import (
	"strconv"
	"strings"
)

// tuple parses an expression, or several with commas between, which make a tuple. withIf allows the inline if.
func (p *parser) tuple(withIf bool) (expr, error) {
	at := p.peek().at
	first, err := p.expression(withIf)
	if err != nil || !p.isOp(",") {
		return first, err
	}
	items := []expr{first}
	for p.skipOp(",") {
		if p.atTupleEnd() {
			break
		}
		e, err := p.expression(withIf)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return &listExpr{node{at}, items, true}, nil
}

func (p *parser) atTupleEnd() bool {
	switch p.peek().kind {
	case tokBlockEnd, tokVarEnd, tokEOF:
		return true
	}
	return p.isOp(")")
}

// expression parses one expression without top-level commas.
func (p *parser) expression(withIf bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.or()
	if err != nil || !withIf {
		return e, err
	}
	for p.isName("if") {
		at := p.next().at
		test, err := p.or()
		if err != nil {
			return nil, err
		}
		c := &condExpr{node: node{at}, test: test, yes: e}
		if p.skipName("else") {
			if c.no, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, nil
}

// leftAssoc parses operands joined by any of ops; the tree leans left.
func (p *parser) leftAssoc(operand func() (expr, error), kind tokenKind, ops ...string) (expr, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		if t.kind != kind || !contains(ops, t.text) {
			return left, nil
		}
		p.next()
		right, err := operand()
		if err != nil {
			return nil, err
		}
		left = &binaryExpr{node{t.at}, t.text, left, right}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (p *parser) or() (expr, error)  { return p.leftAssoc(p.and, tokName, "or") }
func (p *parser) and() (expr, error) { return p.leftAssoc(p.not, tokName, "and") }

func (p *parser) not() (expr, error) {
	if !p.isName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	at := p.next().at
	e, err := p.not()
	return &unaryExpr{node{at}, "not", e}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{node: node{p.peek().at}, first: first}
	for {
		op := p.comparison()
		if op == "" {
			break
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, right)
	}
	if len(c.ops) == 0 {
		return first, nil
	}
	return c, nil
}

// comparison takes a comparison operator, or returns "".
func (p *parser) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokOperator && contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
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

func (p *parser) sum() (expr, error) { return p.leftAssoc(p.concat, tokOperator, "+", "-") }
func (p *parser) product() (expr, error) {
	return p.leftAssoc(p.power, tokOperator, "*", "/", "//", "%")
}
func (p *parser) power() (expr, error) {
	return p.leftAssoc(func() (expr, error) { return p.unary(true) }, tokOperator, "**")
}

func (p *parser) concat() (expr, error) {
	at := p.peek().at
	first, err := p.product()
	if err != nil || !p.isOp("~") {
		return first, err
	}
	parts := []expr{first}
	for p.skipOp("~") {
		e, err := p.product()
		if err != nil {
			return nil, err
		}
		parts = append(parts, e)
	}
	return &concatExpr{node{at}, parts}, nil
}

// unary parses a sign, an operand and what follows it. A sign binds tighter than filters: -1|abs is (-1)|abs.
func (p *parser) unary(withFilter bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expr
	var err error
	if t := p.peek(); p.isOp("-") || p.isOp("+") {
		p.next()
		operand, operandErr := p.unary(false)
		e, err = &unaryExpr{node{t.at}, t.text, operand}, operandErr
	} else {
		e, err = p.primary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !withFilter {
		return e, err
	}
	return p.filtersAndTests(e)
}

func (p *parser) primary() (expr, error) {
	t := p.next()
	n := node{t.at}
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{n, true}, nil
		case "false", "False":
			return &constExpr{n, false}, nil
		case "none", "None":
			return &constExpr{n, nil}, nil
		}
		return &nameExpr{n, t.text}, nil
	case tokString:
		text := t.text
		for p.peek().kind == tokString { // adjacent literals are one string
			text += p.next().text
		}
		return &constExpr{n, text}, nil
	case tokInteger:
		v, err := strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), intBase(t.text), 64)
		if err != nil {
			return nil, syntaxf(t.at, "integer %s does not fit 64 bits", t.text)
		}
		return &constExpr{n, v}, nil
	case tokFloat:
		v, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			return nil, syntaxf(t.at, "number %s is out of range", t.text)
		}
		return &constExpr{n, v}, nil
	case tokOperator:
		switch t.text {
		case "(":
			return p.parenthesised(n)
		case "[":
			items, err := p.items("]")
			return &listExpr{n, items, false}, err
		case "{":
			return p.dict(n)
		}
	}
	return nil, syntaxf(t.at, "expected an expression, found %v", t)
}

// intBase is 0 (by prefix) for 0x, 0o and 0b, and 10 for the rest, where a leading 0 means nothing.
func intBase(text string) int {
	if len(text) > 1 && text[0] == '0' && !isDigit(text[1]) && text[1] != '_' {
		return 0
	}
	return 10
}

func (p *parser) parenthesised(n node) (expr, error) {
	if p.skipOp(")") {
		return &listExpr{n, nil, true}, nil
	}
	e, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return e, p.expectOp(")")
}

// items parses expressions with commas between, up to the closing operator.
func (p *parser) items(end string) ([]expr, error) {
	var items []expr
	for !p.skipOp(end) {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp(end) {
				break
			}
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return items, nil
}

func (p *parser) dict(n node) (expr, error) {
	d := &dictExpr{node: n}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("}") {
				break
			}
		}
		key, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}
