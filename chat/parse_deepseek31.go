package chat

import "strings"

// callMarkers holds the tokens around calls with JSON arguments:
//
//	begin  open name sep JSON close  open ... close  end
type callMarkers struct {
	begin, open, sep, close, end string
	// identity splits the text between open and sep into the tool's name and the id of the call; the id is empty if the
	// text has none.
	identity func(text string) (name, id string)
}

// last returns the last token of the text in close.
func (m *callMarkers) last() string { return m.close[strings.IndexByte(m.close, '<'):] }

var (
	v31Markers = callMarkers{begin: callsBegin, open: callBegin, sep: callSep, close: callEnd, end: callsEnd}
	// DeepSeek-V3 and R1 write the type of the call before its name, and the arguments as a fenced block.
	v3Markers = callMarkers{begin: callsBegin, open: callBegin + "function" + callSep, sep: "\n```json\n",
		close: "\n```" + callEnd, end: callsEnd}
)

// v31Parser parses replies whose calls are enclosed in marker tokens, as in DeepSeek-V3.1 and similar formats. It also
// accepts a call without the tokens begin and end around the list.
type v31Parser struct {
	*stream
	m    *callMarkers
	json strings.Builder // arguments of the current call, which are checked at its end
}

func newV31Parser(req Request, inReasoning bool) Parser {
	return newCallParser(&v31Markers, req, inReasoning)
}

func newV3Parser(req Request, inReasoning bool) Parser {
	return newCallParser(&v3Markers, req, inReasoning)
}

func newCallParser(m *callMarkers, req Request, inReasoning bool) Parser {
	p := &v31Parser{stream: newStream(req), m: m}
	p.begin(inReasoning, p.content)
	return p
}

func (p *v31Parser) content() bool {
	switch p.contentUntil(p.m.begin, p.m.open) {
	case 0:
		return p.enter(p.list)
	case 1:
		return p.enter(p.name)
	}
	return false
}

// list parses the open marker of a call or the end of the list. A reply that stops after a complete call is complete.
func (p *v31Parser) list() bool {
	switch p.expect(p.m.open, p.m.end) {
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
	case p.done && (strings.HasPrefix(p.m.open, string(p.buf)) || strings.HasPrefix(p.m.end, string(p.buf))):
		return p.wait()
	}
	return p.malformed("expected %s or %s", p.m.open, p.m.end)
}

func (p *v31Parser) after() bool {
	p.skipSpace()
	p.commit()
	if len(p.buf) > 0 {
		return p.malformed("text after %s", p.m.end)
	}
	return false
}

func (p *v31Parser) name() bool {
	name, which, again := p.word("tool name", p.m.sep, p.m.close, p.m.last())
	if which < 0 {
		return again
	}
	id := ""
	if name = strings.TrimSpace(name); p.m.identity != nil {
		name, id = p.m.identity(name)
	}
	if which != 0 || !validName(name) {
		return p.malformed("%q is not a tool name followed by %s", name, p.m.sep)
	}
	p.startAs(id, name)
	p.json.Reset()
	return p.enter(p.body)
}

// body emits the arguments as they are generated, because they are already JSON.
func (p *v31Parser) body() bool {
	text, which := p.text(p.m.close)
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
