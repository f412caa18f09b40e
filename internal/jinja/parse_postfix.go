package jinja

import (
	"slices"
	"strconv"
)

// postfix parses look-ups and calls that follow an operand.
func (p *parser) postfix(e expr) expr {
	for {
		switch at := p.peek().at; {
		case p.skipOp("."):
			e = p.attribute(e, at)
		case p.skipOp("["):
			e = p.subscript(e, at)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// attribute parses the part after a dot: a name, or an integer, which is an index.
func (p *parser) attribute(e expr, at pos) expr {
	switch t := p.next(); t.kind {
	case tokName:
		return &attrExpr{node{at}, e, t.text}
	case tokInteger:
		index, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.fail(syntaxf(t.at, "index %s does not fit 64 bits", t.text))
		}
		return &itemExpr{node{at}, e, &constExpr{node{t.at}, index}}
	default:
		p.fail(syntaxf(t.at, "expected a name after '.', found %v", t))
		return e
	}
}

// subscript parses an index, or up to three slice parts separated by colons.
func (p *parser) subscript(e expr, at pos) expr {
	var parts [3]expr
	colons := 0
	for p.err == nil && !p.isOp("]") {
		switch {
		case p.skipOp(":"):
			if colons++; colons > 2 {
				p.fail(syntaxf(p.peek().at, "a slice has at most three parts"))
			}
		case parts[colons] != nil:
			p.expected("']'")
		default:
			parts[colons] = p.expression(true)
		}
	}
	p.next()
	switch {
	case colons > 0:
		return &sliceExpr{node{at}, e, parts[0], parts[1], parts[2]}
	case parts[0] == nil:
		p.fail(syntaxf(at, "empty subscript"))
	}
	return &itemExpr{node{at}, e, parts[0]}
}

func (p *parser) call(e expr) expr {
	return &callExpr{node{p.peek().at}, e, p.arguments()}
}

// arguments parses "(a, b=c, *d, **e)".
func (p *parser) arguments() arguments {
	var a arguments
	p.expectOp("(")
	for first := true; p.more(")", first); first = false {
		p.argument(&a)
	}
	return a
}

func (p *parser) argument(a *arguments) {
	t := p.peek()
	named := t.kind == tokName && p.tokens[p.at+1].kind == tokOperator && p.tokens[p.at+1].text == "="
	star, starStar := p.skipOp("*"), p.skipOp("**")
	if named {
		p.at += 2
	}
	e := p.expression(true)
	switch {
	case star && a.star == nil && a.starStar == nil:
		a.star = e
	case starStar && a.starStar == nil:
		a.starStar = e
	case named && a.starStar == nil:
		a.names, a.named = append(a.names, t.text), append(a.named, e)
	case !star && !starStar && len(a.named) == 0 && a.star == nil && a.starStar == nil:
		a.positional = append(a.positional, e)
	default:
		p.fail(syntaxf(t.at, "arguments are out of order"))
	}
}

// filtersAndTests parses "| filter", "is test" and calls of the result.
func (p *parser) filtersAndTests(e expr) expr {
	for {
		switch {
		case p.isOp("|"):
			e = p.filters(e)
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// filters parses "| a | b(1)" applied to an operand, which is nil in a filter block.
func (p *parser) filters(e expr) expr {
	for p.skipOp("|") {
		e = p.filterName(e)
	}
	return e
}

func (p *parser) filterName(operand expr) expr {
	name := p.expectName()
	if _, ok := filterTable[name.text]; !ok {
		p.fail(unsupportedf(name.at, "filter '%s'", name.text))
	}
	f := &filterExpr{node: node{name.at}, operand: operand, name: name.text}
	if p.isOp("(") {
		f.args = p.arguments()
	}
	return f
}

// test parses "is [not] name" with arguments in parentheses or one operand without.
func (p *parser) test(e expr) expr {
	at := p.next().at
	negated := p.skipName("not")
	name := p.expectName()
	if _, ok := testTable[name.text]; !ok {
		p.fail(unsupportedf(name.at, "test '%s'", name.text))
	}
	t := &testExpr{node: node{at}, operand: e, name: name.text}
	switch {
	case p.isOp("("):
		t.args = p.arguments()
	case p.startsTestOperand():
		t.args.positional = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &unaryExpr{node{at}, "not", t}
	}
	return t
}

func (p *parser) startsTestOperand() bool {
	switch t := p.peek(); t.kind {
	case tokName:
		return !slices.Contains([]string{"else", "or", "and", "is", "if", "in", "not"}, t.text)
	case tokString, tokInteger, tokFloat:
		return true
	case tokOperator:
		return t.text == "[" || t.text == "{"
	}
	return false
}
