package chat

import (
	"fmt"
	"os"
	"sparrow/internal/mark"
	"strings"
	"testing"
)

// longConversation returns a request with n user turns of about 2 KB, each followed by a call, a result and an answer.
func longConversation(n int) Request {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 45)
	req := toolRequest()
	req.Messages = []Message{{Role: System, Content: "Be brief."}}
	for i := range n {
		id := fmt.Sprintf("c%d", i)
		req.Messages = append(req.Messages,
			Message{Role: User, Content: text},
			Message{Role: Assistant,
				ToolCalls: []Call{{ID: id, Name: "weather", Arguments: `{"city": "Rome", "days": 2}`}}},
			Message{Role: ToolRole, Content: "rain", ToolCallID: id},
			Message{Role: Assistant, Content: text})
	}
	req.Messages = append(req.Messages, Message{Role: User, Content: "q"})
	return req
}

func BenchmarkRender(b *testing.B) {
	source, err := os.ReadFile("testdata/default-model.jinja")
	if err != nil {
		b.Fatal(err)
	}
	tmpl, err := NewTemplate(TemplateConfig{Source: string(source), BOS: deepseekBOS, EOS: deepseekEOS})
	if err != nil {
		b.Fatal(err)
	}
	req := longConversation(100)
	for _, f := range []Format{DeepSeekV32{}, DeepSeekV31{}, GLM5{V52: true}, tmpl} {
		b.Run(f.Name(), func(b *testing.B) {
			for b.Loop() {
				p, err := f.Render(req)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(p.Text)))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	reply := strings.Repeat("think ", 2000) + thinkClose + strings.Repeat("word ", 2000) +
		tags("\n\n[calls]\n[invoke name=\"weather\">\n[param name=\"city\" string=\"true\">") +
		strings.Repeat("a \"b\" ", 2000) + tags("[/param]\n[/invoke]\n[/calls]")
	b.SetBytes(int64(len(reply)))
	for b.Loop() {
		p := newDSMLParser(v32, toolRequest(), true)
		for i := 0; i < len(reply); i += 4 { // four bytes are about one token
			p.Feed(mark.Plain(reply[i:min(i+4, len(reply))]))
		}
		if _, err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
