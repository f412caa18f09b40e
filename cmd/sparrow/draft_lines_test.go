package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMessagesOfSeveralLines(t *testing.T) {
	for _, c := range []struct {
		name    string
		lines   []line
		want    string
		command bool
	}{
		{"one line", []line{{text: " hi "}}, "hi", false},
		{"a command", []line{{text: "/help"}}, "/help", true},
		{"a backslash goes on", []line{{text: `a\`}, {text: `  b\`}, {text: "c"}}, "a\n  b\nc", false},
		{"quotes", []line{{text: `"""`}, {text: "/a"}, {text: ""}, {text: `  b\`}, {text: `"""`}}, "/a\n\n  b\\",
			false},
		{"quotes around text", []line{{text: `"""a`}, {text: `b"""`}}, "a\nb", false},
		{"quotes on one line", []line{{text: `"""/a"""`}}, "/a", false},
		{"a paste", []line{{text: `a\`, pasted: true}, {text: "", pasted: true}, {text: "b"}}, "a\\\n\nb", false},
		{"a paste that begins with a slash", []line{{text: "/etc", pasted: true}, {text: "b"}}, "/etc\nb", false},
		{"nothing", []line{{text: "  "}}, "", false},
	} {
		var d draft
		for i, l := range c.lines {
			text, command, whole := d.add(l)
			if last := i == len(c.lines)-1; whole != last || d.open() == last {
				t.Fatalf("%s: after line %d complete is %v, open is %v", c.name, i, whole, d.open())
			} else if last && (text != c.want || command != c.command) {
				t.Errorf("%s: %q, command %v; want %q, %v", c.name, text, command, c.want, c.command)
			}
		}
	}
}

func TestTalkCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trees.txt")
	if err := os.WriteFile(path, []byte("The locker number of Maya is 4711.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	k, _ := startTalk(t, strings.NewReader(strings.Join([]string{"/plan", "/system", "/system Be brief.", "/system",
		"/file", "/file " + path + "x", "/file " + path, `Tell me the locker \`, "number of Maya.", "Goodbye", "/plan",
		"/hepl", "/help", "/system -"}, "\n")), &out)
	k.request.Trace = true
	if err := k.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{"(there is no answer yet)", "(there is no system message)",
		"(the system message is set)", "Be brief.", "(/file needs the path", "no such file",
		"(34 characters are put before your next question)", ". ", "> ", "plan ", "did you mean /help?", "/system TEXT",
		"Ctrl-W", "(the system message is removed)"} {
		i := strings.Index(out.String()[at:], want)
		if i < 0 {
			t.Fatalf("no %q after\n%s\nin\n%s", want, out.String()[:at], &out)
		}
		at += i + len(want)
	}
	question := "Text:\nThe locker number of Maya is 4711.\n\nQuestion: Tell me the locker \nnumber of Maya."
	if len(k.history) != 4 || k.history[0].Content != question || k.history[2].Content != "Goodbye" {
		t.Errorf("history %+v", k.history)
	}
}
