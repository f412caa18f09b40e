package jinja

// signature takes "(a, b=1)".
func (p *parser) signature(m *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.isOp(")") {
		if len(m.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		m.params = append(m.params, name.text)
		if p.skipOp("=") {
			value, err := p.expression(true)
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, value)
		} else if len(m.defaults) > 0 {
			return syntaxf(name.at, "parameter '%s' without a default follows one with a default", name.text)
		}
	}
	return p.expectOp(")")
}

// macroBody parses a body in which the loops around the macro do not count.
func (p *parser) macroBody(m *macroDef, end string) (err error) {
	loops, first := p.loops, p.at
	p.loops = 0
	m.body, err = p.simpleBody(end)
	p.loops = loops
	for _, t := range p.tokens[first:p.at] {
		m.varargs = m.varargs || t.kind == tokName && t.text == "varargs"
		m.kwargs = m.kwargs || t.kind == tokName && t.text == "kwargs"
	}
	return err
}

func (p *parser) macroStatement(n node) (stmt, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	m := &macroDef{name: name.text}
	if err := p.signature(m); err != nil {
		return nil, err
	}
	return &macroStmt{n, m}, p.macroBody(m, "endmacro")
}

func (p *parser) callStatement(n node) (stmt, error) {
	m := &macroDef{name: "caller"}
	if p.isOp("(") {
		if err := p.signature(m); err != nil {
			return nil, err
		}
	}
	e, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, syntaxf(e.place(), "expected a call")
	}
	return &callStmt{n, m, call}, p.macroBody(m, "endcall")
}

func (p *parser) withStatement(n node) (stmt, error) {
	s := &withStmt{node: n}
	for p.peek().kind != tokBlockEnd {
		if len(s.names) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		s.names, s.values = append(s.names, name.text), append(s.values, value)
	}
	var err error
	s.body, err = p.simpleBody("endwith")
	return s, err
}

func (p *parser) filterStatement(n node) (stmt, error) {
	// The first filter has no bar in front of it.
	first, err := p.filterName(nil)
	if err != nil {
		return nil, err
	}
	f, err := p.filters(first)
	if err != nil {
		return nil, err
	}
	body, err := p.simpleBody("endfilter")
	return &filterStmt{n, f, body}, err
}
