package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"sparrow/internal/mark"
)

const v41Effort = "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n"

// The format writes these texts byte for byte (v41 spec, section 7).
func TestV41Texts(t *testing.T) {
	for name, c := range map[string]struct {
		text, sum string
		bytes     int
	}{
		"tools prefix": {v41.toolsPrefix, "2ae2ff83edf990187ed419c4e2901bb9ea6ce2129eb503ac543b258e7de8231d", 884},
		"effort line":  {v41Effort, "86fdea28dfcf6ee1cffe3c13c63f9472d1c250d444d06666b710530963194231", 91},
	} {
		sum := sha256.Sum256([]byte(c.text))
		if len(c.text) != c.bytes || hex.EncodeToString(sum[:]) != c.sum {
			t.Errorf("%s has %d bytes and sum %x", name, len(c.text), sum)
		}
	}
}

func TestV41Prompts(t *testing.T) {
	on := true
	message := func(role Role, text string) Message { return Message{Role: role, Content: text} }
	for name, c := range map[string]struct {
		messages []Message
		thinking *bool
		effort   string
		want     string
	}{
		"user": {[]Message{message(User, "U")}, nil, "", "B<｜User｜>U<｜Assistant｜></think>"},
		"thinking": {[]Message{message(System, "S"), message(User, "U")}, &on, "",
			"B<｜System｜>" + v41Effort + "S<｜User｜>U<｜Assistant｜><think>"},
		"thinking without a system message": {[]Message{message(User, "U")}, &on, "",
			"B<｜System｜>" + v41Effort + "<｜User｜>U<｜Assistant｜><think>"},
		"a number": {[]Message{message(User, "U")}, &on, "12",
			"B<｜System｜>" + strings.Replace(v41Effort, "75", "12", 1) + "<｜User｜>U<｜Assistant｜><think>"},
		"system in the middle": {[]Message{message(User, "q"), message(System, "mid")}, nil, "",
			"B<｜User｜>q<｜System｜>mid<｜Assistant｜></think>"},
		"history": {[]Message{message(System, "S"), message(User, "q1"), message(Assistant, "a1"), message(User, "q2")},
			&on, "", "B<｜System｜>" + v41Effort + "S<｜User｜>q1<｜Assistant｜></think>a1E<｜User｜>q2<｜Assistant｜><think>"},
	} {
		p, err := DeepSeekV41{}.Render(Request{Messages: c.messages, Thinking: c.thinking, Effort: c.effort,
			AddGenerationPrompt: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := strings.NewReplacer(deepseekBOS, "B", deepseekEOS, "E").Replace(p.Text)
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, word := range []string{"medium", "0", "101"} {
		if _, err := (DeepSeekV41{}).Render(Request{Messages: []Message{message(User, "U")}, Thinking: &on,
			Effort: word}); err == nil {
			t.Errorf("effort %q was taken", word)
		}
	}
}

// The parser returns the calls that the format writes, also if the tags contain a space.
func TestV41Calls(t *testing.T) {
	req := toolRequest()
	req.Messages = []Message{{Role: User, Content: "U"}}
	p := DeepSeekV41{}.Parser(req)
	text := "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">v" +
		"</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
	name, args := "", ""
	deltas := p.Feed(mark.Plain(text))
	rest, err := p.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(deltas, rest...) {
		name += d.Call.Name
		args += d.Call.Arguments
	}
	if name != "f" || !strings.Contains(args, `"v"`) {
		t.Errorf("read %q with %q", name, args)
	}
}
