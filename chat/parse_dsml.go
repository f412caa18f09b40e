package chat

import (
	"strings"

	"sparrow/internal/jinja"
)

// dsmlParser parses replies with calls in DeepSeek's markup (see dialect.calls). In addition to the encoder's output it
// accepts four variants: a JSON object as the body of an invoke, a self-closing invoke, a parameter without the
// attribute string, and any white space between elements.
type dsmlParser struct {
	*stream
	dsmlTags

	name  string   // name of the tool of the current invoke
	begun bool     // whether the start of the call has been emitted
	seen  []string // parameters of the call so far; the last one is the current one
}

func newDSMLParser(d dialect, req Request, inReasoning bool) Parser {
	p := &dsmlParser{stream: newStream(req), dsmlTags: d.tags()}
	p.begin(inReasoning, p.content)
	return p
}

// content parses text up to the block with the calls. A blank line before the block is not content.
func (p *dsmlParser) content() bool {
	if n := p.cutOpen(); n > 0 {
		p.deliver(DeltaContent, p.consume(len(p.buf)-n))
		return p.wait()
	}
	if p.contentUntil("\n\n"+p.open, p.open) < 0 {
		return false
	}
	return p.enter(p.block)
}

// cutOpen returns how many bytes at the end of a complete reply are an incomplete opening tag of the block. It returns
// 0 if they do not contain the token ｜DSML｜, because without it they may be content.
func (p *dsmlParser) cutOpen() int {
	if !p.done {
		return 0
	}
	for _, tag := range []string{"\n\n" + p.open, p.open} {
		n := p.startOf(tag)
		if part := tag[:n]; strings.Contains(part, dsml) && p.genuine(len(p.buf)-n, part) {
			return n
		}
	}
	return 0
}

// block parses an invoke or the end of the block. A reply that stops after a complete invoke is complete.
func (p *dsmlParser) block() bool {
	switch p.expect(p.invokeOpen, p.close) {
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

// isPrefix reports whether the text is the start of an element that was cut off by the end of the reply.
func (p *dsmlParser) isPrefix() bool {
	text := string(p.buf)
	for _, tag := range []string{p.invokeOpen, p.close, p.paramOpen, p.invokeClose} {
		if strings.HasPrefix(tag, text) {
			return true
		}
	}
	return false
}

// after parses the text after the block, which must be white space.
func (p *dsmlParser) after() bool {
	p.skipSpace()
	p.commit()
	if len(p.buf) > 0 {
		return p.malformed("text after the end of the calls")
	}
	return false
}

func (p *dsmlParser) invokeName() bool {
	name, which, again := p.word("tool name", `"`)
	if which < 0 {
		return again
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
		return p.endInvoke()
	case needMore:
		return p.wait()
	}
	return p.malformedOrWait("expected the end of the invoke tag")
}

// startOnce emits the start of the call before its first argument. If the body is malformed before that, no part of the
// call was emitted.
func (p *dsmlParser) startOnce() {
	if !p.begun {
		p.begun = true
		p.start(p.name)
	}
}

// endInvoke completes the call.
func (p *dsmlParser) endInvoke() bool {
	p.startOnce()
	p.finish()
	return p.enter(p.block)
}

// malformedOrWait handles an unexpected text. At the end of the reply it may be an incomplete element, otherwise the
// call is malformed.
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
	switch p.expect(p.paramOpen, p.invokeClose) {
	case 0:
		return p.enter(p.paramName)
	case 1:
		return p.endInvoke()
	case needMore:
		return p.wait()
	}
	return p.malformedOrWait("expected a parameter element")
}

// jsonBody parses a JSON object once it is complete, because text that is not JSON must be delivered as content. If the
// reply ends inside the object, its text is delivered as arguments.
func (p *dsmlParser) jsonBody() bool {
	text, which := p.upTo(p.invokeClose)
	if which < 0 && p.done {
		if _, err := replayedArguments(string(p.buf)); err != nil {
			return p.malformed("body of invoke %q: %v", p.name, err)
		}
		p.startOnce()
		p.arguments(p.consume(len(p.buf)))
	}
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
	p.startOnce()
	p.arguments(json)
	return p.enter(p.block)
}

func (p *dsmlParser) paramName() bool {
	name, which, again := p.word("parameter name", `"`)
	if which < 0 {
		return again
	}
	if duplicate(&p.seen, name) {
		return p.malformed("parameter %q of %q occurs twice", name, p.name)
	}
	return p.enter(p.paramEnd)
}

func (p *dsmlParser) paramEnd() bool {
	key := p.seen[len(p.seen)-1]
	v := value{kind: valueString, end: p.paramClose, next: p.body}
	switch p.expect(`string="true">`, `string="false">`, ">") {
	case 0:
	case 1:
		v.kind = valueJSON
	case 2:
		v.kind = p.types.kind(p.name, key)
	case needMore:
		return p.wait()
	default:
		return p.malformedOrWait("expected the string attribute of a parameter")
	}
	p.startOnce()
	return p.readValue(key, v)
}
