package chat

import (
	"strings"

	"sparrow/chat/jinja"
)

// glmParser reads replies with calls in GLM's markup:
//
//	<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>...</tool_call>
//
// Values carry no type: the tool's schema tells strings from JSON. Text may follow a call.
type glmParser struct {
	*stream
	tool string
	seen []string
	key  string
	kind valueKind
}

func newGLMParser(req Request, inReasoning bool) Parser {
	tools := callable(req)
	p := &glmParser{stream: newStream(req, tools)}
	if len(tools) == 0 {
		p.thinking(inReasoning, p.plainContent)
	} else {
		p.thinking(inReasoning, p.content)
	}
	return p
}

func (p *glmParser) content() bool {
	if p.contentUntil(glmCallOpen) < 0 {
		return false
	}
	return p.enter(p.name)
}

// name ends at the first argument or, for a call without arguments, at the call's end.
func (p *glmParser) name() bool {
	name, which := p.upTo(glmKeyOpen, glmCallClose)
	if which < 0 {
		if len(p.buf) > maxName {
			return p.malformed("tool name longer than %d bytes", maxName)
		}
		return p.wait()
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
	key, which := p.upTo(glmKeyClose)
	if which < 0 {
		if len(p.buf) > maxName {
			return p.malformed("argument name longer than %d bytes", maxName)
		}
		return p.wait()
	}
	p.key = strings.TrimSpace(key)
	if duplicate(&p.seen, p.key) {
		return p.malformed("argument %q of %q occurs twice", p.key, p.tool)
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
	p.stream.key(p.key)
	if p.kind = p.types.kind(p.tool, p.key); p.kind != valueString {
		return p.enter(p.otherValue)
	}
	p.arguments(`"`)
	return p.enter(p.stringValue)
}

// unexpected is malformed, unless the reply's end cut one of the tags off.
func (p *glmParser) unexpected(problem string, tags ...string) bool {
	for _, tag := range tags {
		if p.done && strings.HasPrefix(tag, string(p.buf)) {
			return p.wait()
		}
	}
	return p.malformed("%s", problem)
}

// stringValue hands out a string as it comes.
func (p *glmParser) stringValue() bool {
	text, which := p.text(glmValueClose)
	p.arguments(jinja.EscapeJSON(text))
	if which < 0 {
		return p.cutShort()
	}
	p.arguments(`"`)
	return p.enter(p.next)
}

// otherValue waits for the whole value.
func (p *glmParser) otherValue() bool {
	text, which := p.upTo(glmValueClose)
	if which < 0 {
		if p.done {
			p.arguments(p.consume(len(p.buf))) // what there is of the value stays with its call
		}
		return p.cutShort()
	}
	p.value(p.kind, text)
	return p.enter(p.next)
}

// next expects another argument or the call's end.
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

// after drops white space between calls; other text is content again, with the space before it.
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
