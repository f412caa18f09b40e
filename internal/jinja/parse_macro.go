package jinja

// signature parses the parameters of a macro: "(a, b=1)".
func (p *parser) signature(m *macroDef) {
	p.expectOp("(")
	for p.err == nil && !p.isOp(")") {
		if len(m.params) > 0 {
			p.expectOp(",")
		}
		name := p.expectName()
		m.params = append(m.params, name.text)
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expression(true))
		} else if len(m.defaults) > 0 {
			p.fail(syntaxf(name.at, "parameter '%s' without a default follows one with a default", name.text))
		}
	}
	p.expectOp(")")
}

// macroBody parses the body of a macro, in which break and continue of enclosing loops are not allowed.
func (p *parser) macroBody(m *macroDef, end string) {
	loops, first := p.loops, p.at
	p.loops = 0
	m.body = p.simpleBody(end)
	p.loops = loops
	for _, t := range p.tokens[first:p.at] {
		m.varargs = m.varargs || t.kind == tokName && t.text == "varargs"
		m.kwargs = m.kwargs || t.kind == tokName && t.text == "kwargs"
	}
}

func (p *parser) macroStatement(n node) stmt {
	m := &macroDef{name: p.expectName().text}
	p.signature(m)
	p.macroBody(m, "endmacro")
	return &macroStmt{n, m}
}

func (p *parser) callStatement(n node) stmt {
	m := &macroDef{name: "caller"}
	if p.isOp("(") {
		p.signature(m)
	}
	e := p.expression(true)
	call, ok := e.(*callExpr)
	if !ok {
		p.fail(syntaxf(e.place(), "expected a call"))
	}
	p.macroBody(m, "endcall")
	return &callStmt{n, m, call}
}

func (p *parser) withStatement(n node) stmt {
	s := &withStmt{node: n}
	for p.err == nil && p.peek().kind != tokBlockEnd {
		if len(s.names) > 0 {
			p.expectOp(",")
		}
		s.names = append(s.names, p.expectName().text)
		p.expectOp("=")
		s.values = append(s.values, p.expression(true))
	}
	s.body = p.simpleBody("endwith")
	return s
}

func (p *parser) filterStatement(n node) stmt {
	f := p.filters(p.filterName(nil)) // the first filter has no bar before it
	return &filterStmt{n, f, p.simpleBody("endfilter")}
}
