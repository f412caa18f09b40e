package chat

import (
	"strings"

	"sparrow/chat/jinja"
)

// dsmlParser reads replies with calls in DeepSeek's markup (see dsmlCalls). Beyond what the encoder writes it accepts a
// JSON object as the body of an invoke, an invoke that closes itself, a parameter without the string attribute, and any
// white space between elements.
type dsmlParser struct {
	*stream
	open, close string // the block's tags

	name  string   // tool of the current invoke
	begun bool     // its start was handed out
	seen  []string // its parameters so far
	key   string   // current parameter
	kind  valueKind
}

const (
	dsmlInvokeOpen  = "<" + dsml + `invoke name="`
	dsmlInvokeClose = "</" + dsml + "invoke>"
	dsmlParamOpen   = "<" + dsml + `parameter name="`
	dsmlParamClose  = "</" + dsml + "parameter>"
)

func newDSMLParser(block string, req Request, inReasoning bool) Parser {
	tools := callable(req)
	p := &dsmlParser{stream: newStream(req, tools), open: "<" + dsml + block + ">", close: "</" + dsml + block + ">"}
	if len(tools) == 0 {
		p.thinking(inReasoning, p.plainContent)
	} else {
		p.thinking(inReasoning, p.content)
	}
	return p
}

// content runs up to the block. The blank line before the block belongs to it.
func (p *dsmlParser) content() bool {
	if p.contentUntil("\n\n"+p.open, p.open) < 0 {
		return false
	}
	return p.enter(p.block)
}

// block expects an invoke or the block's end. A reply that stops after a complete invoke is complete.
func (p *dsmlParser) block() bool {
	switch p.expect(dsmlInvokeOpen, p.close) {
	case 0:
		p.name, p.begun, p.seen = "", false, nil
		return p.enter(p.invokeName)
	case 1:
		p.commit()
		return p.enter(p.after)
	case needMore:
		return false
	}
	if p.done && len(p.buf) == 0 && p.calls > 0 {
		return false
	}
	if p.done && p.isPrefix() {
		return p.wait()
	}
	return p.malformed("expected an invoke element")
}

// isPrefix says that the text is the start of an element that the reply's end cut off.
func (p *dsmlParser) isPrefix() bool {
	text := string(p.buf)
	for _, tag := range []string{dsmlInvokeOpen, p.close, dsmlParamOpen, dsmlInvokeClose} {
		if strings.HasPrefix(tag, text) {
			return true
		}
	}
	return false
}

// after allows only white space.
func (p *dsmlParser) after() bool {
	p.skipSpace()
	p.commit()
	if len(p.buf) > 0 {
		return p.malformed("text after the end of the calls")
	}
	return false
}

func (p *dsmlParser) invokeName() bool {
	name, which := p.upTo(`"`)
	if which < 0 {
		if len(p.buf) > maxName {
			return p.malformed("tool name longer than %d bytes", maxName)
		}
		return p.wait()
	}
	if !validName(name) {
		return p.malformed("%q is not a tool name", name)
	}
	p.name = name
	return p.enter(p.invokeEnd)
}

func (p *dsmlParser) invokeEnd() bool {
	switch p.expect(">", "/>") {
	case 0:
		return p.enter(p.body)
	case 1:
		p.begin()
		p.finish()
		return p.enter(p.block)
	case needMore:
		return p.wait()
	}
	return p.malformedOrWait("expected the end of the invoke tag")
}

// begin hands out the start of the call, once.
func (p *dsmlParser) begin() {
	if !p.begun {
		p.begun = true
		p.start(p.name)
	}
}

// malformedOrWait is for a mismatch that may be due to the reply's end.
func (p *dsmlParser) malformedOrWait(problem string) bool {
	if p.done && (len(p.buf) == 0 || p.isPrefix()) {
		return p.wait()
	}
	return p.malformed("%s", problem)
}

func (p *dsmlParser) body() bool {
	p.skipSpace()
	if len(p.buf) > 0 && p.buf[0] == '{' && len(p.seen) == 0 {
		return p.enter(p.jsonBody)
	}
	switch p.expect(dsmlParamOpen, dsmlInvokeClose) {
	case 0:
		return p.enter(p.paramName)
	case 1:
		p.begin()
		p.finish()
		return p.enter(p.block)
	case needMore:
		return p.wait()
	}
	return p.malformedOrWait("expected a parameter element")
}

// jsonBody waits for the whole object, because text that does not parse must come back as content.
func (p *dsmlParser) jsonBody() bool {
	text, which := p.upTo(dsmlInvokeClose)
	if which < 0 {
		return p.wait()
	}
	args, err := parseArguments(text)
	if err != nil {
		return p.malformed("body of invoke %q: %v", p.name, err)
	}
	json, err := jinja.JSON(args)
	if err != nil {
		return p.malformed("body of invoke %q: %v", p.name, err)
	}
	p.begin()
	p.arguments(json)
	return p.enter(p.block)
}

func (p *dsmlParser) paramName() bool {
	name, which := p.upTo(`"`)
	if which < 0 {
		if len(p.buf) > maxName {
			return p.malformed("parameter name longer than %d bytes", maxName)
		}
		return p.wait()
	}
	if duplicate(&p.seen, name) {
		return p.malformed("parameter %q of %q occurs twice", name, p.name)
	}
	p.key = name
	return p.enter(p.paramEnd)
}

func (p *dsmlParser) paramEnd() bool {
	switch p.expect(`string="true">`, `string="false">`, ">") {
	case 0:
		p.kind = valueString
	case 1:
		p.kind = valueJSON
	case 2:
		p.kind = p.types.kind(p.name, p.key)
	case needMore:
		return p.wait()
	default:
		return p.malformedOrWait("expected the string attribute of a parameter")
	}
	p.begin()
	p.stream.key(p.key)
	if p.kind != valueString {
		return p.enter(p.otherValue)
	}
	p.arguments(`"`)
	return p.enter(p.stringValue)
}

// stringValue hands out a string as it comes.
func (p *dsmlParser) stringValue() bool {
	text, which := p.text(dsmlParamClose)
	p.arguments(jinja.EscapeJSON(text))
	if which < 0 {
		return p.cutShort()
	}
	p.arguments(`"`)
	return p.enter(p.body)
}

// otherValue waits for the whole value.
func (p *dsmlParser) otherValue() bool {
	text, which := p.upTo(dsmlParamClose)
	if which < 0 {
		if p.done {
			p.arguments(p.consume(len(p.buf))) // what there is of the value stays with its call
		}
		return p.cutShort()
	}
	p.value(p.kind, text)
	return p.enter(p.body)
}
