package chat

// CallSyntax is the syntax of tool calls in a format: Begin, then for each call Open, its name, Sep, its arguments and
// Close, then End.
type CallSyntax struct {
	Begin, Open, Sep, Close, End string
	// JSON reports that arguments are one JSON object. Otherwise they are written in the format's own syntax, and their
	// end is the end of the call.
	JSON bool
	// ReasoningEnd is the marker that ends the reasoning at the beginning of a reply.
	ReasoningEnd string
	// Markers are texts that occur only in replies with calls. If no token of a reply can begin a marker, the reply
	// contains no part of a call.
	Markers []string
}

// Caller is a Format whose tool calls can be constrained while they are generated.
type Caller interface {
	// CallSyntax returns the syntax of calls; false if the format has no calls.
	CallSyntax() (CallSyntax, bool)
}

// ReplyMarkers returns the texts that a format's Parser looks for in a reply.
func ReplyMarkers(f Format) []string {
	markers := []string{thinkOpen, thinkClose}
	if caller, ok := f.(Caller); ok {
		if s, ok := caller.CallSyntax(); ok {
			markers = append(markers, s.Markers...)
		}
	}
	return markers
}

var v31Calls = CallSyntax{Begin: callsBegin, Open: callBegin, Sep: callSep, Close: callEnd, End: callsEnd, JSON: true,
	ReasoningEnd: thinkClose, Markers: []string{callsBegin, callBegin, callSep, callEnd, callsEnd}}

var v3Calls = CallSyntax{Begin: callsBegin, Open: v3Markers.open, Sep: v3Markers.sep, Close: v3Markers.close,
	End: callsEnd, JSON: true, ReasoningEnd: thinkClose, Markers: v31Calls.Markers}

// CallSyntax returns the syntax: JSON arguments between marker tokens.
func (DeepSeekV31) CallSyntax() (CallSyntax, bool) { return v31Calls, true }

// CallSyntax returns DSML, whose parameters are elements, not JSON.
func (DeepSeekV32) CallSyntax() (CallSyntax, bool) { return dsmlCalls(v32), true }

// CallSyntax returns DSML with the block name of V4.
func (DeepSeekV4) CallSyntax() (CallSyntax, bool) { return dsmlCalls(v4), true }

func dsmlCalls(d dialect) CallSyntax {
	tags := d.tags()
	return CallSyntax{Begin: "\n\n" + tags.open + "\n", Open: tags.invokeOpen, Sep: `">` + "\n",
		ReasoningEnd: thinkClose, Markers: []string{dsml}}
}

// glmCalls is the syntax of GLM: arguments are pairs of a key element and a value element.
var glmCalls = CallSyntax{Open: glmCallOpen, ReasoningEnd: thinkClose,
	Markers: []string{glmCallOpen, glmCallClose, glmKeyOpen, glmKeyClose, glmValueOpen, glmValueClose}}

// CallSyntax returns the syntax of tool calls of GLM.
func (GLM5) CallSyntax() (CallSyntax, bool) { return glmCalls, true }

// CallSyntax returns the syntax that NewTemplate detected from the markers in the template or the tokenizer.
func (t *Template) CallSyntax() (CallSyntax, bool) { return t.calls, t.calls.Open != "" }
