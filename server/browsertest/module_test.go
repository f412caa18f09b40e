package browsertest

import (
	"encoding/json"
	"reflect"
	"testing"
)

// modules checks functions of the page's modules with data that no view shows: the value of each expression must equal
// the expected JSON.
func (w *world) modules(t *testing.T) {
	p := w.open(t, w.url, desktop)
	const recorded = `(() => { const r = new recording.Recording(["a", " b", ".\n", "c", "d", "e", "f", "g"]); r.add({rows: [
		{position: 7, layers: [{layer: 0, keys: 8, selected: "AQIB", scores: "AACAPwAAAEAAAEBA"}, {layer: 1, keys: 8, all: true},
			{layer: 2, keys: 8, as: 0}, {layer: 3, keys: 8, group: 4, selected: "BA==", window: 2},
			{layer: 4, keys: 7, group: 4, all: true, window: 1}, {layer: 5, keys: 8, window: 3}],
		experts: [{layer: 1, ids: "AQACAQ==", weights: "AACAPwAAAD8="}]}], not_computed: [[0, 4]]});
		r.addTokens(["h"]); return r; })()`
	for name, c := range map[string]struct{ expression, want string }{
		"positions": {`[...recording.positions("AICAAQE=")]`, `[0, 16384, 16385]`},
		"looks": {`[...` + recorded + `.rowOf(8).looks].map(([l, look]) => { const out = []; look.each((p) => out.push(p));
			return [l, look.count, ...out]; })`,
			`[[0,3,1,3,4],[1,8,0,1,2,3,4,5,6,7],[3,4,4,5,6,7],[4,5,0,1,2,3,6],[5,3,5,6,7],[2,3,1,3,4]]`},
		"range of looks": {`[0, 1].map((l) => ` + recorded + `.rowOf(8).looks.get(l).within(2, 5))`, `[2, 3]`},
		"scores": {`[...` + recorded + `.rowOf(8).looks.get(0).strengths].map((z) => Math.round(100 * z))`,
			`[0, 0, 122]`},
		"scores of groups": {`(() => { const r = new recording.Recording(["a"]); r.add({rows: [{position: 0, layers: [
			{layer: 0, keys: 8, group: 2, selected: "AAQ=", scores: "AACAPwAAQEA=", window: 1}]}]});
			const look = r.rowOf(1).looks.get(0); return [[...look.selected], [...look.strengths]]; })()`,
			`[[0, 1, 4, 5, 7], [0, 0, 1, 1, 0]]`},
		"experts": {`(() => { const r = ` + recorded + `; const x = r.rowOf(8).experts.get(1);
			return [r.experts, [...x.ids], [...x.weights]]; })()`, `[259, [1, 258], [1, 0.5]]`},
		"rows and outputs": {`(() => { const r = ` + recorded + `; return [r.outputs, r.layers, r.passages, r.notComputed]; })()`,
			`[[8], [0,1,2,3,4,5], [[0,3],[3,8],[8,9]], [[0,4]]]`},
		"cut characters": {`text.whole(["a", "\\xf0\\x9f", "\\x90\\xa6", "b", "\\xff", "\\xf0\\x9f", "\\x90\\xa6", "\\x41"])`,
			`["a", "🐦", "", "b", "\\xff", "🐦", "", "\\x41"]`},
		"cut characters of an answer": {`(() => { const r = new recording.Recording(["a"]); r.addTokens(["\\xf0\\x9f"]);
			r.addTokens(["\\x90\\xa6"]); r.addTokens(["b"]); return r.tokens; })()`, `["a", "🐦", "", "b"]`},
		"hidden characters": {`text.visible("a\r\nb\tc\u0000\u009f\u2067")`, `"a\nb\tc␀⟨U+009F⟩⟨U+2067⟩"`},
		"code in prose": {`(() => { const n = document.createElement("div"); const p = new text.Prose(n);
			const whole = "before\n` + "```" + `go\nx := 1\n\ny := 2\n` + "```" + `\nafter";
			for (let i = 1; i <= whole.length; i++) p.set(whole.slice(0, i));
			return [...n.children].map((c) => [c.tagName, c.textContent]); })()`,
			`[["SPAN", "before"], ["PRE", "x := 1\n\ny := 2"], ["SPAN", "after"]]`},
		"metrics": {`metrics.read('# HELP x y\nx 1\nx_total{a="q\\"\\\\",b="z"} 2.5e3\nbad line here\n')`,
			`[{"name": "x", "labels": {}, "value": 1}, {"name": "x_total", "labels": {"a": "q\"\\", "b": "z"}, "value": 2500}]`},
		"a long line of prose": {`(() => { const n = document.createElement("div"); const p = new text.Prose(n);
			p.set("😀".repeat(5000)); return [n.textContent === "😀".repeat(5000), n.childElementCount]; })()`, `[true, 3]`},
		"speeds are the server's": {`(() => { const r = new conversation.Reply();
			r.add({choices: [{delta: {content: "a"}}]}); r.add({choices: [{delta: {content: "b"}}]});
			r.add({choices: [], usage: {prompt_tokens: 5, completion_tokens: 21}, sparrow: {traces: [
				{times: {queued_ms: 2, prefill_ms: 60, decode_ms: 40}}]}});
			const {first, rate} = r.stats(); return [first, rate]; })()`, `[62, 500]`},
		"no speeds without the server's times": {`(() => { const r = new conversation.Reply();
			r.add({choices: [{delta: {content: "a"}}], usage: {prompt_tokens: 5, completion_tokens: 21}});
			const {first, rate} = r.stats(); return [first === undefined, rate === undefined]; })()`, `[true, true]`},
		"request of a conversation": {`conversation.requestOf({system: "s", parameters: {temperature: "0", seed: "", thinking: "off"},
			messages: [{role: "user", content: "q", files: [{name: "n", text: " f "}]},
				{role: "assistant", content: "", calls: [{id: "c", name: "n", arguments: "{}"}]}, {role: "tool", call: "c", content: "r"},
				{role: "assistant", content: "", fault: "it failed"}]}, "m")`,
			`{"model": "m", "temperature": 0, "chat_template_kwargs": {"thinking": false}, "messages": [
				{"role": "system", "content": "s"}, {"role": "user", "content": "Text:\nf\n\nQuestion: q"},
				{"role": "assistant", "content": "", "tool_calls": [
					{"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}]},
				{"role": "tool", "tool_call_id": "c", "content": "r"}]}`},
	} {
		var got, want any
		p.eval(`(async () => { const [recording, text, metrics, conversation] = await Promise.all(
			["recording", "text", "metrics", "conversation"].map((m) => import("./page/" + m + ".js")));
			return `+c.expression+`; })()`, &got)
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
