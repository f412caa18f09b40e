package chat

import "strings"

// glmParser parses replies with calls in GLM's markup:
//
//	<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>...</tool_call>
//
// Values have no type: the tool's schema states whether a value is a string or JSON. Text may follow a call.
type glmParser struct {
	*stream
	tool string
	seen []string // arguments of the current call; the last is the current one
}

func newGLMParser(req Request, inReasoning bool) Parser {
	p := &glmParser{stream: newStream(req)}
	p.begin(inReasoning, p.content)
	return p
}

func (p *glmParser) content() bool {
	if p.contentUntil(glmCallOpen) < 0 {
		return false
	}
	return p.enter(p.name)
}

// name parses a name up to the first argument or, for a call without arguments, up to the call's end.
func (p *glmParser) name() bool {
	name, which, again := p.word("tool name", glmKeyOpen, glmCallClose)
	if which < 0 {
		return again
	}
	if name = strings.TrimSpace(name); !validName(name) {
		return p.malformed("%q is not a tool name", name)
	}
	p.tool, p.seen = name, nil
	p.start(name)
	if which == 1 {
		p.finish()
		return p.enter(p.after)
	}
	return p.enter(p.argKey)
}

func (p *glmParser) argKey() bool {
	key, which, again := p.word("argument name", glmKeyClose)
	if which < 0 {
		return again
	}
	if key = strings.TrimSpace(key); duplicate(&p.seen, key) {
		return p.malformed("argument %q of %q occurs twice", key, p.tool)
	}
	return p.enter(p.valueOpen)
}

func (p *glmParser) valueOpen() bool {
	switch p.expect(glmValueOpen) {
	case needMore:
		return false
	case mismatch:
		return p.unexpected("expected "+glmValueOpen, glmValueOpen)
	}
	key := p.seen[len(p.seen)-1]
	return p.readValue(key, value{kind: p.types.kind(p.tool, key), end: glmValueClose, next: p.next})
}

// unexpected reports malformed markup. If the reply ended inside one of the tags, the call is unfinished, not
// malformed.
func (p *glmParser) unexpected(problem string, tags ...string) bool {
	for _, tag := range tags {
		if p.done && strings.HasPrefix(tag, string(p.buf)) {
			return p.wait()
		}
	}
	return p.malformed("%s", problem)
}

// next parses the start of another argument or the end of the call.
func (p *glmParser) next() bool {
	switch p.expect(glmKeyOpen, glmCallClose) {
	case 0:
		return p.enter(p.argKey)
	case 1:
		p.finish()
		return p.enter(p.after)
	case needMore:
		return false
	}
	return p.unexpected("expected "+glmKeyOpen+" or "+glmCallClose, glmKeyOpen, glmCallClose)
}

// after skips white space between calls. Other text is content, together with the white space before it.
func (p *glmParser) after() bool {
	switch p.expect(glmCallOpen) {
	case 0:
		return p.enter(p.name)
	case needMore:
		return false
	}
	if p.done && len(p.buf) == 0 {
		return false
	}
	p.deliver(DeltaContent, string(p.raw))
	return p.enter(p.content)
}
