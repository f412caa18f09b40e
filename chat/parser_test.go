package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sparrow/internal/mark"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// weatherTools is a list of tools with one parameter of each JSON type.
var weatherTools = []Tool{
	{Name: "weather", Parameters: json.RawMessage(`{"type": "object", "properties": {
		"city": {"type": "string"}, "days": {"type": "integer"}, "opts": {"type": "object"},
		"unit": {"$ref": "#/$defs/unit"}, "when": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "free": {}},
		"$defs": {"unit": {"enum": ["C", "F"]}}}`)},
	{Name: "noop"},
}

func toolRequest() Request {
	return Request{Messages: []Message{{Role: User, Content: "q"}}, Tools: weatherTools, AddGenerationPrompt: true,
		NewCallID: func(i int) string { return fmt.Sprintf("call_%d", i) }}
}

type parserMaker func(req Request, inReasoning bool) Parser

var parserMakers = map[string]parserMaker{
	"dsml": func(r Request, open bool) Parser { return newDSMLParser(v32, r, open) },
	"v31":  newV31Parser,
	"glm":  newGLMParser,
	"v3":   newV3Parser,
	"kimi": newKimiParser,
}

func tags(s string) string {
	return strings.NewReplacer("[calls]", "<｜DSML｜function_calls>", "[/calls]", "</｜DSML｜function_calls>",
		"[invoke ", "<｜DSML｜invoke ", "[/invoke]", "</｜DSML｜invoke>", "[param ", "<｜DSML｜parameter ", "[/param]",
		"</｜DSML｜parameter>", "[begin]", callsBegin, "[end]", callsEnd, "[call]", callBegin, "[/call]", callEnd,
		"[sep]", callSep).Replace(s)
}

type parserCase struct {
	name, family, text string
	open               bool // whether the prompt ends inside reasoning
	noTools            bool
	want               Message
	malformed          string // the joined content deltas that are marked as malformed
	err                error
}

func calls(pairs ...string) []Call {
	var out []Call
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Call{ID: fmt.Sprintf("call_%d", i/2), Name: pairs[i], Arguments: pairs[i+1]})
	}
	return out
}

// longName is longer than the maximum length of a tool name, for replies that only resemble a call.
var longName = strings.Repeat("n", maxName+500)

var parserCases = []parserCase{
	{name: "fenced call", family: "v3", open: true,
		text: tags("hm</think>Wait.[begin][call]function[sep]weather\n```json\n{\"city\": \"`x`\"}\n```[/call]" +
			"[call]function[sep]noop\n```json\n{}\n```[/call][end]"),
		want: Message{Reasoning: "hm", Content: "Wait.",
			ToolCalls: calls("weather", "{\"city\": \"`x`\"}", "noop", "{}")}},
	{name: "call without a fence", family: "v3", text: tags("[begin][call]function[sep]noop[/call][end]"),
		want:      Message{Content: tags("[begin][call]function[sep]noop[/call][end]")},
		malformed: tags("[begin][call]function[sep]noop[/call][end]"), err: ErrMalformedCall},
	{name: "calls with their own ids", family: "kimi",
		text: "Wait." + kimiCallsBegin + kimiCallBegin + "functions.weather:3" + kimiArguments + `{"days": 2}` +
			kimiCallEnd + kimiCallBegin + "functions.noop:4" + kimiArguments + "{}" + kimiCallEnd + kimiCallsEnd,
		want: Message{Content: "Wait.", ToolCalls: []Call{{"functions.weather:3", "weather", `{"days": 2}`},
			{"functions.noop:4", "noop", "{}"}}}},
	{name: "a call by its name alone", family: "kimi",
		text: kimiCallsBegin + kimiCallBegin + "noop" + kimiArguments + "{}" + kimiCallEnd + kimiCallsEnd,
		want: Message{ToolCalls: calls("noop", "{}")}},
	{name: "a call that is cut off", family: "kimi",
		text: kimiCallsBegin + kimiCallBegin + "functions.weather:0" + kimiArguments + `{"city": "K`,
		want: Message{ToolCalls: []Call{{"functions.weather:0", "weather", `{"city": "K`}}}, err: ErrUnfinishedCall},
	{name: "plain content", family: "dsml", text: "Hello\n\nWorld\n\n", want: Message{Content: "Hello\n\nWorld\n\n"}},
	{name: "nothing", family: "dsml", text: "", want: Message{}},
	{name: "reasoning and content", family: "dsml", open: true, text: "hm</think>Hello",
		want: Message{Reasoning: "hm", Content: "Hello"}},
	{name: "reasoning that is cut off", family: "dsml", open: true, text: "hm </thi",
		want: Message{Reasoning: "hm </thi"}},
	{name: "reasoning opened by the reply", family: "glm", text: "<think>hm</think>Hello",
		want: Message{Reasoning: "hm", Content: "Hello"}},
	{name: "reasoning opened twice", family: "glm", open: true, text: "<think>hm</think>Hello",
		want: Message{Reasoning: "hm", Content: "Hello"}},
	{name: "text that starts like a marker", family: "dsml", text: "<thin air> <｜DSML",
		want: Message{Content: "<thin air> <｜DSML"}},
	{name: "markers without tools are text", family: "dsml", noTools: true, text: tags("x[calls]"),
		want: Message{Content: tags("x[calls]")}},

	{name: "one call", family: "dsml", text: tags("Let me see.\n\n[calls]\n[invoke name=\"weather\">\n[param " +
		"name=\"city\" string=\"true\">Köln \"a\"\n<b>[/param]\n[param name=\"days\" string=\"false\">2[/param]\n" +
		"[/invoke]\n[/calls]"),
		want: Message{Content: "Let me see.", ToolCalls: calls("weather", `{"city": "Köln \"a\"\n<b>", "days": 2}`)}},
	{name: "reasoning and two calls", family: "dsml", open: true, text: tags("hm</think>\n\n[calls]\n[invoke " +
		"name=\"noop\">\n\n[/invoke]\n[invoke name=\"noop\">\n[param name=\"x\" " +
		"string=\"false\">{\"a\":[1,2]}[/param]\n[/invoke]\n[/calls]\n"),
		want: Message{Reasoning: "hm", ToolCalls: calls("noop", "{}", "noop", `{"x": {"a": [1, 2]}}`)}},
	{name: "self-closing invoke", family: "dsml",
		text: tags("[calls][invoke name=\"noop\"/>[invoke name=\"noop\" />[/calls]"),
		want: Message{ToolCalls: calls("noop", "{}", "noop", "{}")}},
	{name: "JSON inside invoke", family: "dsml",
		text: tags("[calls]\n[invoke name=\"weather\">\n{\"city\":\"x\",\"days\":1}\n[/invoke]\n[/calls]"),
		want: Message{ToolCalls: calls("weather", `{"city": "x", "days": 1}`)}},
	{name: "parameters without the string attribute use the schema", family: "dsml",
		text: tags("[calls][invoke name=\"weather\">[param name=\"city\">5[/param][param " +
			"name=\"days\">5[/param][/invoke][/calls]"),
		want: Message{ToolCalls: calls("weather", `{"city": "5", "days": 5}`)}},
	{name: "a value that is not JSON is kept as a string", family: "dsml",
		text: tags(
			"[calls][invoke name=\"weather\">[param name=\"days\" string=\"false\">two[/param][/invoke][/calls]"),
		want: Message{ToolCalls: calls("weather", `{"days": "two"}`)}},
	{name: "block not closed after a complete call", family: "dsml",
		text: tags("[calls]\n[invoke name=\"noop\">\n[/invoke]\n"), want: Message{ToolCalls: calls("noop", "{}")}},
	{name: "garbage in the block", family: "dsml", text: tags("a\n\n[calls]\noops"),
		want: Message{Content: tags("a\n\n[calls]\noops")}, malformed: tags("\n\n[calls]\noops"),
		err: ErrMalformedCall},
	{name: "garbage after a call keeps the call", family: "dsml",
		text: tags("[calls][invoke name=\"noop\"/>oops[/calls]"),
		want: Message{Content: tags("oops[/calls]"), ToolCalls: calls("noop", "{}")}, malformed: tags("oops[/calls]"),
		err: ErrMalformedCall},
	{name: "text after the block", family: "dsml", text: tags("[calls][invoke name=\"noop\"/>[/calls]\n\nbye"),
		want: Message{Content: "bye", ToolCalls: calls("noop", "{}")}, malformed: "bye", err: ErrMalformedCall},
	{name: "bad JSON inside invoke", family: "dsml",
		text:      tags("[calls][invoke name=\"weather\">{oops[/invoke][/calls]"),
		want:      Message{Content: tags("[calls][invoke name=\"weather\">{oops[/invoke][/calls]")},
		malformed: tags("[calls][invoke name=\"weather\">{oops[/invoke][/calls]"), err: ErrMalformedCall},
	{name: "parameter twice", family: "dsml", text: tags("[calls][invoke name=\"weather\">[param name=\"city\" " +
		"string=\"true\">a[/param][param name=\"city\" string=\"true\">b[/param]"),
		want: Message{Content: tags("[param name=\"city\" string=\"true\">b[/param]"),
			ToolCalls: calls("weather", `{"city": "a"`)},
		malformed: tags("[param name=\"city\" string=\"true\">b[/param]"), err: ErrMalformedCall},
	{name: "cut off in a tag", family: "dsml", text: tags("a\n\n[calls]\n") + "<｜DSML｜invo",
		want: Message{Content: "a"}, err: ErrUnfinishedCall},
	{name: "cut off in the block's tag", family: "dsml", text: "a\n\n<｜DSML｜func", want: Message{Content: "a"},
		err: ErrUnfinishedCall},
	{name: "cut off before a parameter", family: "dsml", text: tags("a[calls][invoke name=\"weather\">\n[param nam"),
		want: Message{Content: "a"}, err: ErrUnfinishedCall},
	{name: "cut off in JSON inside invoke", family: "dsml",
		text: tags("[calls]\n[invoke name=\"weather\">\n{\"city\":\"Kö"),
		want: Message{ToolCalls: calls("weather", "{\"city\":\"Kö")}, err: ErrUnfinishedCall},
	{name: "cut off in a string", family: "dsml",
		text: tags("[calls][invoke name=\"weather\">[param name=\"city\" string=\"true\">Kö"),
		want: Message{ToolCalls: calls("weather", `{"city": "Kö`)}, err: ErrUnfinishedCall},
	{name: "cut off in another value", family: "dsml",
		text: tags("[calls][invoke name=\"weather\">[param name=\"opts\" string=\"false\">{\"a\": 1"),
		want: Message{ToolCalls: calls("weather", `{"opts": {"a": 1`)}, err: ErrUnfinishedCall},

	{name: "endless tool name", family: "dsml", text: tags("[calls][invoke name=\"") + longName,
		want:      Message{Content: tags("[calls][invoke name=\"") + longName},
		malformed: tags("[calls][invoke name=\"") + longName, err: ErrMalformedCall},
	{name: "endless parameter name", family: "dsml",
		text:      tags("[calls][invoke name=\"noop\">[param name=\"") + longName + "\" ",
		want:      Message{Content: tags("[calls][invoke name=\"noop\">[param name=\"") + longName + "\" "},
		malformed: tags("[calls][invoke name=\"noop\">[param name=\"") + longName + "\" ", err: ErrMalformedCall},

	{name: "endless tool name", family: "v31", text: callBegin + longName + callSep,
		want: Message{Content: callBegin + longName + callSep}, malformed: callBegin + longName + callSep,
		err: ErrMalformedCall},
	{name: "one call", family: "v31", text: tags("See.[begin][call]weather[sep]{\"city\": \"Köln\"}[/call][end]"),
		want: Message{Content: "See.", ToolCalls: calls("weather", `{"city": "Köln"}`)}},
	{name: "two calls and white space", family: "v31",
		text: tags("[begin]\n[call]weather[sep]{}[/call]\n[call]noop[sep][/call][end]\n"),
		want: Message{ToolCalls: calls("weather", "{}", "noop", "{}")}},
	{name: "call without list tokens", family: "v31", text: tags("[call]noop[sep]{}[/call]"),
		want: Message{ToolCalls: calls("noop", "{}")}},
	{name: "arguments that are not JSON", family: "v31", text: tags("[begin][call]noop[sep]{oops[/call][end]"),
		want: Message{ToolCalls: calls("noop", "{oops")}, err: ErrMalformedCall},
	{name: "cut off in the arguments", family: "v31", text: tags("[begin][call]noop[sep]{\"a\": \"b"),
		want: Message{ToolCalls: calls("noop", `{"a": "b`)}, err: ErrUnfinishedCall},
	{name: "cut off in the name", family: "v31", text: tags("See.[begin][call]no"), want: Message{Content: "See."},
		err: ErrUnfinishedCall},
	{name: "cut off after the list's token", family: "v31", text: tags("[begin]"), err: ErrUnfinishedCall},
	{name: "no separator", family: "v31", text: tags("[begin][call]noop[/call][end]"),
		want: Message{Content: tags("[begin][call]noop[/call][end]")}, malformed: tags("[begin][call]noop[/call][end]"),
		err: ErrMalformedCall},
	{name: "text in the list", family: "v31", text: tags("[begin]x"), want: Message{Content: tags("[begin]x")},
		malformed: tags("[begin]x"), err: ErrMalformedCall},

	{name: "endless tool name", family: "glm", text: glmCallOpen + longName + glmCallClose,
		want: Message{Content: glmCallOpen + longName + glmCallClose}, malformed: glmCallOpen + longName + glmCallClose,
		err: ErrMalformedCall},
	{name: "one call by schema", family: "glm", open: true, text: "hm</think>See.<tool_call>weather<arg_key>city</" +
		"arg_key><arg_value>007</arg_value><arg_key>days</arg_key><arg_value>3</arg_value><arg_key>unit</" +
		"arg_key><arg_value>C</arg_value><arg_key>opts</arg_key><arg_value>{\"a\":[true]}</arg_value></tool_call>",
		want: Message{Reasoning: "hm", Content: "See.",
			ToolCalls: calls("weather", `{"city": "007", "days": 3, "unit": "C", "opts": {"a": [true]}}`)}},
	{name: "values that may be a string or null", family: "glm", text: "<tool_call>weather<arg_key>when</" +
		"arg_key><arg_value>null</arg_value></tool_call><tool_call>weather<arg_key>when</arg_key><arg_value>12</" +
		"arg_value></tool_call>",
		want: Message{ToolCalls: calls("weather", `{"when": null}`, "weather", `{"when": "12"}`)}},
	{name: "values without a type", family: "glm", text: "<tool_call>weather<arg_key>free</arg_key><arg_value>12</" +
		"arg_value></tool_call>\n<tool_call>other<arg_key>x</arg_key><arg_value>a b</arg_value></tool_call>",
		want: Message{ToolCalls: calls("weather", `{"free": 12}`, "other", `{"x": "a b"}`)}},
	{name: "call without arguments and newlines as in older models", family: "glm",
		text: "\n<tool_call>noop\n</tool_call>\n", want: Message{Content: "\n", ToolCalls: calls("noop", "{}")}},
	{name: "text after a call", family: "glm", text: "<tool_call>noop</tool_call>\nbye",
		want: Message{Content: "\nbye", ToolCalls: calls("noop", "{}")}},
	{name: "JSON instead of a name", family: "glm", text: "<tool_call>{\"name\": 1}</tool_call>",
		want:      Message{Content: "<tool_call>{\"name\": 1}</tool_call>"},
		malformed: "<tool_call>{\"name\": 1}</tool_call>", err: ErrMalformedCall},
	{name: "key without value", family: "glm", text: "<tool_call>noop<arg_key>a</arg_key></tool_call>",
		want:      Message{Content: "a</arg_key></tool_call>", ToolCalls: calls("noop", "")},
		malformed: "a</arg_key></tool_call>", err: ErrMalformedCall},
	{name: "cut off in a string", family: "glm", text: "<tool_call>weather<arg_key>city</arg_key><arg_value>Kö</arg_v",
		want: Message{ToolCalls: calls("weather", `{"city": "Kö</arg_v`)}, err: ErrUnfinishedCall},
	{name: "cut off in the name", family: "glm", text: "a<tool_call>wea", want: Message{Content: "a"},
		err: ErrUnfinishedCall},
}

// wrongNames are replies with an empty tool name or with an argument twice. The golden table does not contain them.
var wrongNames = []parserCase{
	{name: "empty tool name", family: "dsml", text: tags("[calls][invoke name=\"\">"),
		want: Message{Content: tags("[calls][invoke name=\"\">")}, malformed: tags("[calls][invoke name=\"\">"),
		err: ErrMalformedCall},
	{name: "key twice", family: "glm", text: "<tool_call>weather<arg_key>days</arg_key><arg_value>1</arg_value>" +
		"<arg_key> days</arg_key><arg_value>2</arg_value></tool_call>",
		want: Message{Content: "<arg_key> days</arg_key><arg_value>2</arg_value></tool_call>",
			ToolCalls: calls("weather", `{"days": 1`)},
		malformed: "<arg_key> days</arg_key><arg_value>2</arg_value></tool_call>", err: ErrMalformedCall},
}

func (c parserCase) parser() Parser {
	req := toolRequest()
	if c.noTools {
		req.Tools = nil
	}
	return parserMakers[c.family](req, c.open)
}

// feed passes the pieces to a parser and returns the message, the malformed text and the error.
func feed(p Parser, pieces []string) (Message, string, error) {
	var c Collector
	var malformed strings.Builder
	add := func(deltas []Delta) {
		c.Add(deltas...)
		for _, d := range deltas {
			if d.Malformed {
				malformed.WriteString(d.Text)
			}
		}
	}
	for _, piece := range pieces {
		add(p.Feed(mark.Plain(piece)))
	}
	last, err := p.Close()
	add(last)
	return c.Message(), malformed.String(), err
}

func TestParsersReadReplies(t *testing.T) {
	for _, c := range slices.Concat(parserCases, wrongNames) {
		t.Run(c.family+": "+c.name, func(t *testing.T) {
			c.want.Role = Assistant
			got, malformed, err := feed(c.parser(), []string{c.text})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if malformed != c.malformed {
				t.Errorf("malformed text %q, want %q", malformed, c.malformed)
			}
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("error %v, want %v", err, c.err)
			}
		})
	}
}

// No delta is empty: clients would count it as a token.
func TestNoDeltaIsEmpty(t *testing.T) {
	for _, c := range slices.Concat(parserCases, wrongNames) {
		p := c.parser()
		var all []Delta
		for i := range len(c.text) {
			all = append(all, p.Feed(mark.Plain(c.text[i:i+1]))...)
		}
		last, _ := p.Close() // TestParsersReadReplies compares the error
		for i, d := range append(all, last...) {
			if d.Text == "" && d.Call.ID == "" && d.Call.Arguments == "" {
				t.Errorf("%s: %s: delta %d is %+v", c.family, c.name, i, d)
			}
		}
	}
}

// split returns the pieces of a text that is cut at random positions, also inside characters.
func split(t *rapid.T, text string) []string {
	var pieces []string
	for text != "" {
		n := rapid.IntRange(1, min(len(text), rapid.SampledFrom([]int{1, 3, 20, len(text)}).Draw(t, "most"))).Draw(t,
			"piece")
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func TestAnySplitGivesTheSameResult(t *testing.T) {
	for _, c := range parserCases {
		wantMessage, wantMalformed, wantErr := feed(c.parser(), []string{c.text})
		rapid.Check(t, func(t *rapid.T) {
			got, malformed, err := feed(c.parser(), split(t, c.text))
			if diff := cmp.Diff(wantMessage, got); diff != "" || malformed != wantMalformed ||
				fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%s %s:\n%s\nmalformed %q, want %q\nerror %v, want %v", c.family, c.name, diff, malformed,
					wantMalformed, err, wantErr)
			}
		})
	}
}

// Any sequence of markers and text is parsed to the same result for every split into pieces, and without tools no text
// is lost.
func TestAnySplitOfArbitraryMarkup(t *testing.T) {
	parts := []string{"a", "\n", "\n\n", " ", "<", "\"", ">", "{", "}", "é", "weather", "city", "<think>", "</think>",
		tags("[calls]"), tags("[/calls]"), tags("[invoke name=\""), tags("[/invoke]"), tags("[param name=\""),
		"\" string=\"true\">", "\" string=\"false\">", tags("[/param]"), "\">", "\"/>", callsBegin, callsEnd, callBegin,
		callEnd, callSep, glmCallOpen, glmCallClose, glmKeyOpen, glmKeyClose, glmValueOpen, glmValueClose}
	for family, makeParser := range parserMakers {
		rapid.Check(t, func(t *rapid.T) {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 25).Draw(t, "parts"), "")
			open := rapid.Bool().Draw(t, "open")
			want, wantMalformed, wantErr := feed(makeParser(toolRequest(), open), []string{text})
			got, malformed, err := feed(makeParser(toolRequest(), open), split(t, text))
			if diff := cmp.Diff(want, got); diff != "" || malformed != wantMalformed ||
				fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%s, text %q:\n%s\nmalformed %q, want %q\nerror %v, want %v", family, text, diff, malformed,
					wantMalformed, err, wantErr)
			}
			req := toolRequest()
			req.Tools = nil
			plain, _, err := feed(makeParser(req, false), []string{text})
			if err != nil || !strings.HasPrefix(text, thinkOpen) && plain.Content != text {
				t.Fatalf("%s without tools: content %q and error %v, want %q", family, plain.Content, err, text)
			}
		})
	}
}

func TestContentNeverHoldsPartOfAMarker(t *testing.T) {
	text := tags("Hi\n\n[calls]\n[invoke name=\"noop\">\n[/invoke]\n[/calls]")
	p := newDSMLParser(v32, toolRequest(), false)
	for i := range len(text) {
		for _, d := range p.Feed(mark.Plain(text[i : i+1])) {
			if d.Kind == DeltaContent && strings.ContainsAny(d.Text, "\n<") {
				t.Fatalf("byte %d gave content %q, which is part of a marker", i, d.Text)
			}
		}
	}
}

func TestStringArgumentsStreamAsTheyCome(t *testing.T) {
	p := newDSMLParser(v32, toolRequest(), false)
	p.Feed(mark.Plain(tags("[calls]\n[invoke name=\"weather\">\n[param name=\"city\" string=\"true\">")))
	deltas := p.Feed(mark.Plain("Kö"))
	if len(deltas) != 1 || deltas[0].Call.Arguments != "Kö" {
		t.Errorf("after half a value the deltas are %+v, want its text", deltas)
	}
}

// Only a marker's own token is a marker. The same characters written by other tokens are text, for every split of the
// reply. A reply whose markers are all tokens has the same result as without this distinction.
func TestSpelledMarkersAreText(t *testing.T) {
	syntax := map[string]CallSyntax{"dsml": dsmlCalls(v32), "v31": v31Calls, "glm": glmCalls, "v3": v3Calls,
		"kimi": kimiCalls}
	for _, c := range parserCases {
		if len(c.want.ToolCalls) == 0 {
			continue
		}
		t.Run(c.family+": "+c.name, func(t *testing.T) {
			req := toolRequest()
			req.CallTokens = syntax[c.family].Markers
			read := func(text mark.Text) Message {
				whole, bytewise := parserMakers[c.family](req, c.open), parserMakers[c.family](req, c.open)
				var once, cut Collector
				once.Add(whole.Feed(text)...)
				for i := range len(text.String()) {
					cut.Add(bytewise.Feed(text.Cut(i, i+1))...)
				}
				rest, _ := whole.Close()
				once.Add(rest...)
				rest, _ = bytewise.Close()
				cut.Add(rest...)
				if diff := cmp.Diff(once.Message(), cut.Message()); diff != "" {
					t.Errorf("byte by byte (-whole +cut):\n%s", diff)
				}
				return once.Message()
			}
			c.want.Role = Assistant
			var b mark.Builder
			for rest := c.text; rest != ""; {
				at, token := len(rest), ""
				for _, m := range req.CallTokens {
					if i := strings.Index(rest, m); i >= 0 && i < at {
						at, token = i, m
					}
				}
				b.Mark(rest[:at])
				b.WriteString(token)
				rest = rest[at+len(token):]
			}
			if diff := cmp.Diff(c.want, read(b.Text())); diff != "" {
				t.Errorf("with tokens (-want +got):\n%s", diff)
			}
			spelled := read(mark.Marked(c.text))
			if len(spelled.ToolCalls) != 0 || !strings.HasSuffix(c.text, spelled.Content) {
				t.Errorf("spelled: %+v", spelled)
			}
		})
	}
}
