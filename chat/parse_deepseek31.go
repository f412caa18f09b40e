package chat

import "strings"

// v31Parser reads replies with calls between DeepSeek-V3.1's tokens:
//
//	<calls begin> <call begin> name <sep> JSON <call end> ... <calls end>
//
// It also accepts a call without the tokens around the list.
type v31Parser struct {
	*stream
	json strings.Builder // arguments of the current call, for the check at its end
}

func newV31Parser(req Request, inReasoning bool) Parser {
	p := &v31Parser{stream: newStream(req)}
	p.begin(inReasoning, p.content)
	return p
}

func (p *v31Parser) content() bool {
	switch p.contentUntil(callsBegin, callBegin) {
	case 0:
		return p.enter(p.list)
	case 1:
		return p.enter(p.name)
	}
	return false
}

// list expects a call or the end of the list. A reply that stops after a complete call is complete.
func (p *v31Parser) list() bool {
	switch p.expect(callBegin, callsEnd) {
	case 0:
		return p.enter(p.name)
	case 1:
		p.commit()
		return p.enter(p.after)
	case needMore:
		return false
	}
	switch {
	case p.done && len(p.buf) == 0 && p.calls > 0:
		return false
	case p.done && (strings.HasPrefix(callBegin, string(p.buf)) || strings.HasPrefix(callsEnd, string(p.buf))):
		return p.wait()
	}
	return p.malformed("expected %s or %s", callBegin, callsEnd)
}

func (p *v31Parser) after() bool {
	p.skipSpace()
	p.commit()
	if len(p.buf) > 0 {
		return p.malformed("text after %s", callsEnd)
	}
	return false
}

func (p *v31Parser) name() bool {
	name, which, again := p.word("tool name", callSep, callEnd)
	if which < 0 {
		return again
	}
	if name = strings.TrimSpace(name); which != 0 || !validName(name) {
		return p.malformed("%q is not a tool name followed by %s", name, callSep)
	}
	p.start(name)
	p.json.Reset()
	return p.enter(p.body)
}

// body hands out the arguments as they come: they already are JSON.
func (p *v31Parser) body() bool {
	text, which := p.text(callEnd)
	p.json.WriteString(text)
	p.arguments(text)
	if which < 0 {
		return p.cutShort()
	}
	if strings.TrimSpace(p.json.String()) == "" {
		p.finish()
	} else if _, err := parseArguments(p.json.String()); err != nil && p.err == nil {
		p.err = malformedArguments(p.calls-1, err)
	}
	return p.enter(p.list)
}
