package eval

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

const goodLine = `{"messages": [{"role": "user", "content": "Hi"}], "answer": "Hello!", "final": "Hello!"}`

func file(text string) fs.FS { return fstest.MapFS{"t.jsonl": {Data: []byte(text)}} }

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The task files in the binary are those of the accuracy table.
func TestShippedTasks(t *testing.T) {
	want := map[string]int{"word1": 100, "word2": 100, "word3": 100, "word4": 100, "list": 100, "json": 100,
		"tool": 100, "talk": 100, "find_one_1024": 100, "find_one_2048": 100, "find_one_4096": 50, "find_one_8192": 20,
		"find_two_2048": 100, "find_hop_2048": 100, "result": 30, "extract": 30}
	tasks, err := Load(Shipped(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) != len(want) {
		t.Errorf("%d tasks, want %d", len(tasks), len(want))
	}
	for _, task := range tasks {
		if len(task.Items) != want[task.Name] {
			t.Errorf("%s has %d items, want %d", task.Name, len(task.Items), want[task.Name])
		}
		for i, it := range task.Items {
			if it.Task != task.Name || it.Line != i+1 || it.Final == "" || it.Tokens == 0 ||
				len(it.Chat.Messages) == 0 || it.Thinking() {
				t.Errorf("%s is incomplete: %+v", it.Where(), it)
			}
			if (task.Name == "extract") != (it.Schema != nil) {
				t.Errorf("%s: its schema is %s", it.Where(), it.Schema)
			}
			if (task.Name == "tool" || task.Name == "result") != (len(it.Chat.Tools) > 0) {
				t.Errorf("%s has %d tools", it.Where(), len(it.Chat.Tools))
			}
			if !holds(it.Answer, strings.Fields(it.Final)) {
				t.Errorf("%s: the answer %q does not hold the final value %q", it.Where(), it.Answer, it.Final)
			}
		}
	}
}

func TestLoadChoosesByPattern(t *testing.T) {
	dir := fstest.MapFS{"word1.jsonl": {Data: []byte(goodLine)},
		"word2.jsonl.gz": {Data: zipped(t, goodLine+"\n\n \t\n"+goodLine+"\n")}, "tool.jsonl": {Data: []byte(goodLine)},
		"notes.txt": {}, "sub/x.jsonl": {}}
	for _, c := range []struct{ patterns, want string }{
		{"", "tool word1 word2"},
		{"word*", "word1 word2"},
		{"tool, word2", "tool word2"},
		{"*", "tool word1 word2"},
	} {
		tasks, err := Load(dir, c.patterns)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, task := range tasks {
			names = append(names, task.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q gives %s, want %s", c.patterns, got, c.want)
		}
	}
	tasks, err := Load(dir, "word2")
	if err != nil || len(tasks[0].Items) != 2 || tasks[0].Items[1].Line != 4 {
		t.Errorf("word2.jsonl.gz: %+v, %v", tasks, err)
	}
	for _, patterns := range []string{"sums", "[", "notes"} {
		if _, err := Load(dir, patterns); !errors.Is(err, ErrTask) || !strings.Contains(err.Error(), patterns) {
			t.Errorf("pattern %q: %v", patterns, err)
		}
	}
	if _, err := Load(fstest.MapFS{"a.txt": {}}, ""); !errors.Is(err, ErrTask) {
		t.Errorf("a folder without tasks: %v", err)
	}
}

func TestBadTaskFiles(t *testing.T) {
	user := `"messages": [{"role": "user", "content": "Hi"}]`
	for name, c := range map[string]struct{ text, want string }{
		"half an object": {goodLine + "\n{",
			"line 2: the JSON ends too early; an item is a JSON object with messages, answer"},
		"not JSON": {goodLine + "\nnothing here",
			`line 2: byte 2 of "nothing here" is not JSON; an item is`},
		"a list":               {"[]", "line 1: a JSON array instead of an object"},
		"a number as answer":   {`{` + user + `, "answer": 5}`, "answer: is a JSON number; an item is"},
		"two values on a line": {goodLine + goodLine, "one item"},
		"unknown name": {`{` + user + `, "answer": "x", "tool": []}`,
			`line 1: unknown field "tool"; an item is`},
		"no answer":      {`{` + user + `}`, "answer"},
		"empty answer":   {`{` + user + `, "answer": ""}`, "answer"},
		"no messages":    {`{"answer": "x"}`, "messages"},
		"empty messages": {`{"messages": [], "answer": "x"}`, "messages"},
		"unknown role":   {`{"messages": [{"role": "bird", "content": "tweet"}], "answer": "x"}`, "role"},
		"a tool without name": {`{` + user + `, "answer": "x", "tools": [{"type": "function", "function": {}}]}`,
			"tools[0]"},
		"choices and messages": {`{` + user + `, "prompt": "a", "choices": ["b", "c"], "label": 0}`,
			"both a conversation and choices"},
		"choices without a prompt": {`{"choices": ["b", "c"], "label": 0}`, "prompt is missing"},
		"one choice":               {`{"prompt": "a", "choices": ["b"], "label": 0}`, "choices has 1"},
		"an empty choice":          {`{"prompt": "a", "choices": ["b", ""], "label": 0}`, "choices[1] is empty"},
		"no label":                 {`{"prompt": "a", "choices": ["b", "c"]}`, "label: want the number"},
		"a label outside":          {`{"prompt": "a", "choices": ["b", "c"], "label": 2}`, "0 to 1"},
		"negative tokens":          {`{` + user + `, "answer": "x", "tokens": -1}`, "tokens"},
		"empty file":               {"\n\n", "no items"},
		"a line too long":          {strings.Repeat(" ", maxLineBytes+1), "token too long"},
	} {
		_, err := LoadFile(file(c.text), "t.jsonl")
		if !errors.Is(err, ErrTask) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "t.jsonl") {
			t.Errorf("%s: %v; want it to name t.jsonl and %q", name, err, c.want)
		}
	}
	for name, dir := range map[string]fs.FS{"missing.jsonl": fstest.MapFS{}, "a.gz": fstest.MapFS{"a.gz": {}},
		"plain.jsonl.gz": fstest.MapFS{"plain.jsonl.gz": {Data: []byte(goodLine)}}} {
		if _, err := LoadFile(dir, name); !errors.Is(err, ErrTask) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A conversation with calls, results and reasoning is passed to the chat layer completely.
func TestItemConversation(t *testing.T) {
	line :=
		`{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "sun"}], "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"z": 1, "a": 2}}}],
		"answer": "It shines.</think>Sun."}`
	it, err := parseItem([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	m := it.Chat.Messages
	if len(m) != 4 || m[0].Role != "system" || m[1].Content != "Weather?" ||
		m[2].ToolCalls[0].Arguments != `{"city": "Rome"}` || m[3].ToolCallID != "c1" {
		t.Errorf("messages %+v", m)
	}
	if got := string(it.Chat.Tools[0].Parameters); strings.Index(got, "z") > strings.Index(got, "a") {
		t.Errorf("parameters lost their order: %s", got)
	}
	if !it.Thinking() || it.Chat.Thinking == nil || !*it.Chat.Thinking || !it.Chat.AddGenerationPrompt {
		t.Errorf("an answer with reasoning does not enable reasoning: %+v", it.Chat)
	}
}

func FuzzItem(f *testing.F) {
	f.Add([]byte(goodLine))
	f.Add([]byte(`{"messages": [{"role": "user", "content": "x"}], "tools": null, "answer": "</think>"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		it, err := parseItem(line)
		if err == nil && (it.Answer == "" || len(it.Chat.Messages) == 0) {
			t.Errorf("%q gives an item without answer or messages", line)
		}
	})
}
