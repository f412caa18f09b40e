package jinja

import "strconv"

// postfix parses look-ups and calls after an operand.
func (p *parser) postfix(e expr) (expr, error) {
	for {
		t := p.peek()
		var err error
		switch {
		case p.isOp("."):
			p.next()
			e, err = p.attribute(e, t.at)
		case p.isOp("["):
			p.next()
			e, err = p.subscript(e, t.at)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// attribute parses what follows a dot: a name, or an integer that is an index.
func (p *parser) attribute(e expr, at pos) (expr, error) {
	switch t := p.next(); t.kind {
	case tokName:
		return &attrExpr{node{at}, e, t.text}, nil
	case tokInteger:
		index, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return nil, syntaxf(t.at, "index %s does not fit 64 bits", t.text)
		}
		return &itemExpr{node{at}, e, &constExpr{node{t.at}, index}}, nil
	default:
		return nil, syntaxf(t.at, "expected a name after '.', found %v", t)
	}
}

// subscript parses an index, or up to three slice parts with colons between.
func (p *parser) subscript(e expr, at pos) (expr, error) {
	var parts [3]expr
	colons := 0
	for !p.isOp("]") {
		if p.skipOp(":") {
			if colons++; colons > 2 {
				return nil, syntaxf(p.peek().at, "a slice has at most three parts")
			}
			continue
		}
		if parts[colons] != nil {
			return nil, syntaxf(p.peek().at, "expected ']', found %v", p.peek())
		}
		part, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		parts[colons] = part
	}
	p.next()
	switch {
	case colons > 0:
		return &sliceExpr{node{at}, e, parts[0], parts[1], parts[2]}, nil
	case parts[0] == nil:
		return nil, syntaxf(at, "empty subscript")
	}
	return &itemExpr{node{at}, e, parts[0]}, nil
}

func (p *parser) call(e expr) (expr, error) {
	at := p.peek().at
	args, err := p.arguments()
	return &callExpr{node{at}, e, args}, err
}

// arguments parses "(a, b=c, *d, **e)".
func (p *parser) arguments() (arguments, error) {
	var a arguments
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	for first := true; !p.skipOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.skipOp(")") {
				break
			}
		}
		if err := p.argument(&a); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (p *parser) argument(a *arguments) error {
	t := p.peek()
	named := t.kind == tokName && p.tokens[p.at+1].kind == tokOperator && p.tokens[p.at+1].text == "="
	star, starStar := p.skipOp("*"), p.skipOp("**")
	if named {
		p.at += 2
	}
	e, err := p.expression(true)
	if err != nil {
		return err
	}
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
		return syntaxf(t.at, "arguments are out of order")
	}
	return nil
}

// filtersAndTests parses "| filter", "is test" and calls of the result.
func (p *parser) filtersAndTests(e expr) (expr, error) {
	for {
		var err error
		switch {
		case p.isOp("|"):
			e, err = p.filters(e)
		case p.isName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filters parses "| a | b(1)" around an operand, which is nil inside a block.
func (p *parser) filters(e expr) (expr, error) {
	for p.skipOp("|") {
		f, err := p.filterName(e)
		if err != nil {
			return nil, err
		}
		e = f
	}
	return e, nil
}

func (p *parser) filterName(operand expr) (expr, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	if _, ok := filterTable[name.text]; !ok {
		return nil, unsupportedf(name.at, "filter '%s'", name.text)
	}
	f := &filterExpr{node: node{name.at}, operand: operand, name: name.text}
	if p.isOp("(") {
		f.args, err = p.arguments()
	}
	return f, err
}

// test parses "is [not] name", with arguments in parentheses or one bare operand.
func (p *parser) test(e expr) (expr, error) {
	at := p.next().at
	negated := p.skipName("not")
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	if _, ok := testTable[name.text]; !ok {
		return nil, unsupportedf(name.at, "test '%s'", name.text)
	}
	t := &testExpr{node: node{at}, operand: e, name: name.text}
	switch {
	case p.isOp("("):
		if t.args, err = p.arguments(); err != nil {
			return nil, err
		}
	case p.startsTestOperand():
		operand, err := p.primary()
		if err != nil {
			return nil, err
		}
		if operand, err = p.postfix(operand); err != nil {
			return nil, err
		}
		t.args.positional = []expr{operand}
	}
	if negated {
		return &unaryExpr{node{at}, "not", t}, nil
	}
	return t, nil
}

func (p *parser) startsTestOperand() bool {
	switch t := p.peek(); t.kind {
	case tokName:
		return !contains([]string{"else", "or", "and", "is", "if", "in", "not"}, t.text)
	case tokString, tokInteger, tokFloat:
		return true
	case tokOperator:
		return t.text == "[" || t.text == "{"
	}
	return false
}
