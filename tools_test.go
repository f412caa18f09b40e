package sparrow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sparrow/chat"
)

// manyTools returns n tools of about size bytes each, like the list of an agent with many connectors.
func manyTools(n, size int) []chat.Tool {
	list := make([]chat.Tool, n)
	for i := range list {
		var b bytes.Buffer
		b.WriteString(`{"type": "object", "properties": {`)
		for p := 0; b.Len() < size; p++ {
			if p > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, `"field_%d_%d": {"type": "string", "description": "%s"}`, i, p, strings.Repeat("text ", 40))
		}
		b.WriteString(`}, "required": []}`)
		list[i] = chat.Tool{Name: fmt.Sprintf("tool_%d", i), Description: "A tool.", Parameters: b.Bytes()}
	}
	return list
}

// A list of 200 tools with 300 KB is compiled only once; of a changed list only the changed tools are compiled.
func TestToolsThatComeAgain(t *testing.T) {
	e := start(t, Config{})
	tools := manyTools(200, 1500)
	size := 0
	for i := range tools {
		size += len(tools[i].Parameters)
	}
	if size < 300_000 {
		t.Fatalf("%d bytes of tools", size)
	}
	messages := []chat.Message{{Role: chat.User, Content: "q"}}
	compiled, read := int64(0), int64(0)
	ask := func(what string, wantCompiled, wantRead int64) {
		t.Helper()
		r := &Request{Chat: &chat.Request{Messages: messages, Tools: tools, AddGenerationPrompt: true}}
		_, ids, err := e.render(r.Chat)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 0 {
			t.Fatal("no prompt")
		}
		g, err := e.guide(t.Context(), r, false)
		if err != nil {
			t.Fatal(err)
		}
		g.Release()
		g.Release() // a second Release has no effect
		e.format.Parser(e.conversation(r.Chat))
		if c, d := e.tools.Compiled()-compiled, e.shown.Read()-read; c != wantCompiled || d != wantRead {
			t.Errorf("%s: %d tools compiled and %d read, want %d and %d", what, c, d, wantCompiled, wantRead)
		}
		compiled, read = e.tools.Compiled(), e.shown.Read()
	}
	e.info.ContextTokens = 1 << 20 // the tools are longer than the model's context, but nothing is generated
	ask("the first time", 200, 200)
	ask("again", 0, 0)
	messages = append(messages, chat.Message{Role: chat.Assistant, Content: "a"},
		chat.Message{Role: chat.User, Content: "r"})
	ask("a turn later", 0, 0)
	tools[7].Parameters = json.RawMessage(`{"type": "object", "properties": {"other": {"type": "integer"}}}`)
	ask("with a tool that changed", 1, 1)
	tools[9].Description = "Another text."
	ask("with a text that changed", 0, 1)
	if n := e.tools.Bytes(); n <= 0 || n > maxToolBytes {
		t.Errorf("the cache of compiled tools holds %d bytes", n)
	}
}
