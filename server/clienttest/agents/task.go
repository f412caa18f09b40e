package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sparrow/chat"
	"sparrow/internal/sim/script"
)

// The task: a script that adds two numbers has a wrong sign.
const (
	task     = "Correct add.sh so that test.sh passes."
	finished = "Finished: the test passes."
	broken   = "echo $(($1 - $2))\n"
	correct  = "echo $(($1 + $2))\n"
	test     = "if [ \"$(sh add.sh 2 3)\" = 5 ]; then echo passed; else echo failed; exit 1; fi\n"
)

// scratch creates a git repository with the task.
func scratch(ctx context.Context, work string) (string, error) {
	dir := filepath.Join(work, "repository")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for name, text := range map[string]string{"add.sh": broken, "test.sh": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=n", "-c",
		"user.email=n@example.org", "commit", "-q", "-m", "A script that adds"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("git: %w: %s", err, out)
		}
	}
	return dir, nil
}

// solved checks the files after the agent has ended.
func solved(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "add.sh"))
	if err != nil {
		return err
	}
	if string(text) != correct {
		return fmt.Errorf("add.sh is %q", text)
	}
	return nil
}

// tools holds functions that return an agent's calls for reading, editing and running.
type tools struct {
	read func(path string) chat.Call
	edit func(path, old, text string) chat.Call
	run  func(command string) chat.Call
}

// call returns a call whose arguments are name-value pairs.
func call(name string, pairs ...string) chat.Call {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		value, err := json.Marshal(pairs[i+1])
		if err != nil {
			panic(err) // encoding a string cannot fail
		}
		fmt.Fprintf(&b, ", %q: %s", pairs[i], value)
	}
	return chat.Call{Name: name, Arguments: "{" + strings.TrimPrefix(b.String(), ", ") + "}"}
}

// steps returns the scripted replies of the model.
func (a *agent) steps(dir string) []chat.Message {
	path := func(name string) string { return filepath.Join(dir, name) }
	t := &a.tools
	return []chat.Message{
		{ToolCalls: []chat.Call{t.read(path("add.sh")), t.read(path("test.sh"))}},
		{ToolCalls: []chat.Call{t.edit(path("add.sh"), "$1 - $2", "$1 * $2")}},
		{ToolCalls: []chat.Call{t.run("sh test.sh")}},
		{ToolCalls: []chat.Call{t.edit(path("add.sh"), "$1 * $2", "$1 + $2")}},
		{ToolCalls: []chat.Call{t.run("sh test.sh")}},
		{Content: finished},
	}
}

// marker returns a text in the reply of a step, by which later prompts show how far the script has got.
func marker(step int) string { return fmt.Sprintf("Now comes part %d.", step) }

// reply returns a script that answers with the step after the last one in the prompt. Prompts without the agent's tools
// are auxiliary requests, for example for a title, and get a fixed reply.
func (a *agent) reply(dir string) script.Reply {
	steps := a.steps(dir)
	for i := range steps[:len(steps)-1] {
		steps[i].Content, steps[i].Reasoning = marker(i), "I look at what is there."
	}
	return func(prompt string) chat.Message {
		if !strings.Contains(prompt, a.offers) {
			return chat.Message{Content: "A small correction"}
		}
		n := 0
		for n < len(steps)-1 && strings.Contains(prompt, marker(n)) {
			n++
		}
		return steps[n]
	}
}
