package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sparrow/internal/jinja"
)

// drawCall returns a random call of a tool whose schema allows any value. No value contains the closing marker of the
// family, because the formats cannot escape it.
func drawCall(t *rapid.T) Call {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\"'\\<>&/{}[]: \n\té数😀")), 0, 20, -1)
	value := rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.IntRange(-9, 9999999), func(i int) any { return i }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just(any(nil)),
		rapid.Map(rapid.SliceOfN(text, 0, 3), func(s []string) any { return s }),
		rapid.Map(rapid.MapOfN(text, rapid.Int(), 0, 3), func(m map[string]int) any { return m }),
	)
	d := jinja.NewDict()
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b_c", "ü", "long name"}), 0, 4,
		rapid.ID).Draw(t, "keys") {
		raw, err := json.Marshal(value.Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := jinja.ParseJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		d.Set(key, v)
	}
	args, err := jinja.JSON(d)
	if err != nil {
		t.Fatal(err)
	}
	return Call{Name: rapid.SampledFrom([]string{"f", "get_weather", "a-b.c"}).Draw(t, "name"), Arguments: args}
}

// A format writes an assistant message as the model would write it, so the parser must return the same message.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	for _, f := range []Format{DeepSeekV4{}, DeepSeekV32{}, DeepSeekV31{}} {
		rapid.Check(t, func(t *rapid.T) {
			want := Message{Role: Assistant,
				Content: rapid.SampledFrom([]string{"", "text", "two\n\nparts"}).Draw(t, "content")}
			results := []Message{}
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				want.ToolCalls = append(want.ToolCalls, drawCall(t))
				results = append(results, Message{Role: ToolRole, Content: "r"})
			}
			req := Request{Messages: []Message{{Role: User, Content: "q"}}, AddGenerationPrompt: true,
				Tools: []Tool{{Name: "f"}}}
			prompt, err := f.Render(req)
			if err != nil {
				t.Fatal(err)
			}
			replay := req
			replay.Messages = append([]Message{req.Messages[0], want}, results...)
			whole, err := f.Render(replay)
			if err != nil {
				t.Fatal(err)
			}
			reply, found := strings.CutPrefix(whole.Text, prompt.Text)
			if !found {
				t.Fatalf("%s: the next prompt %q does not start with the first %q", f.Name(), whole.Text, prompt.Text)
			}
			reply, _, _ = strings.Cut(reply, deepseekEOS)
			got, err := Parse(f.Parser(req), reply)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got.ToolCalls {
				if !strings.HasPrefix(got.ToolCalls[i].ID, "call_") {
					t.Fatalf("call id %q", got.ToolCalls[i].ID)
				}
				got.ToolCalls[i].ID = ""
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: reply %q (-want +got):\n%s", f.Name(), reply, diff)
			}
		})
	}
}

// The parser of every format begins inside reasoning where the prompt ends there. Where the request has the answer, the
// prompt is not rendered again.
func TestParsersBeginWhereThePromptEnds(t *testing.T) {
	for _, f := range []Format{DeepSeekV31{}, DeepSeekV32{}, DeepSeekV4{}, DeepSeekV4{Preview: true}, DeepSeekV41{},
		GLM5{}, GLM5{V52: true}, Kimi{}, Kimi{Thinks: true}, defaultModel(t)} {
		for _, thinks := range []bool{false, true} {
			req := Request{Messages: []Message{{Role: User, Content: "q"}}, AddGenerationPrompt: true,
				Thinking: &thinks}
			p, err := f.Render(req)
			if k, native := f.(Kimi); err != nil && native && !k.Thinks {
				continue // the format refuses the argument
			}
			if err != nil {
				t.Fatalf("%s: %v", f.Name(), err)
			}
			begins := func(why string, want bool) {
				t.Helper()
				m, _ := Parse(f.Parser(req), "text")
				if (m.Reasoning == "text") != want || (m.Content == "text") == want {
					t.Errorf("%s, thinking %t, %s: reasoning %q and content %q", f.Name(), thinks, why, m.Reasoning,
						m.Content)
				}
			}
			begins("rendered", p.InReasoning)
			for _, begun := range []bool{false, true} {
				req.Begun = &begun
				begins("as the request has it", begun)
			}
		}
	}
}
