package jinja

// parseSignature parses the parameters of a macro: "(a, b=1)".
func parseSignature(p *parser, m *macroDef) {
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
func macroBody(p *parser, m *macroDef, end string) {
	loops, first := p.loops, p.at
	p.loops = 0
	m.body = simpleBody(p, end)
	p.loops = loops
	for _, t := range p.tokens[first:p.at] {
		m.varargs = m.varargs || t.kind == tokName && t.text == "varargs"
		m.kwargs = m.kwargs || t.kind == tokName && t.text == "kwargs"
	}
}

func macroStatement(p *parser, n node) stmt {
	m := &macroDef{name: p.expectName().text}
	parseSignature(p, m)
	macroBody(p, m, "endmacro")
	return &macroStmt{n, m}
}

func callStatement(p *parser, n node) stmt {
	m := &macroDef{name: "caller"}
	if p.isOp("(") {
		parseSignature(p, m)
	}
	e := p.expression(true)
	call, ok := e.(*callExpr)
	if !ok {
		p.fail(syntaxf(e.place(), "expected a call"))
	}
	macroBody(p, m, "endcall")
	return &callStmt{n, m, call}
}

func withStatement(p *parser, n node) stmt {
	s := &withStmt{node: n}
	for p.err == nil && p.peek().kind != tokBlockEnd {
		if len(s.names) > 0 {
			p.expectOp(",")
		}
		s.names = append(s.names, p.expectName().text)
		p.expectOp("=")
		s.values = append(s.values, p.expression(true))
	}
	s.body = simpleBody(p, "endwith")
	return s
}

func filterStatement(p *parser, n node) stmt {
	f := p.filters(p.filterName(nil)) // the first filter has no bar before it
	return &filterStmt{n, f, simpleBody(p, "endfilter")}
}
