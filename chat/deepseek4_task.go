package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// v4Tasks lists the short tasks of DeepSeek-V4: the next action, a search query, the sources and the field of a
// question, a title, whether a page needs reading. Each has its own token. A task applies to the last user or developer
// message; the template argument task selects it, and its reply has no reasoning.
var v4Tasks = []string{"action", "query", "authority", "domain", "title", "read_url"}

// taskAction is the task whose reply is a turn of the assistant. The reply to another task follows the message
// directly.
const taskAction = "action"

// v4Task reads the template argument task; empty means none.
func v4Task(req Request) (string, error) {
	raw, ok := req.Kwargs["task"]
	if !ok {
		return "", nil
	}
	var task string
	if err := json.Unmarshal(raw, &task); err != nil {
		return "", fieldError("chat_template_kwargs.task", "must be a string, not %s", raw)
	}
	switch {
	case !slices.Contains(v4Tasks, task):
		return "", fmt.Errorf("%w: chat_template_kwargs.task is %q; want one of %s", ErrUnsupported, task,
			strings.Join(v4Tasks, ", "))
	case !req.AddGenerationPrompt:
		return "", fieldError("chat_template_kwargs.task",
			"requests a reply, but add_generation_prompt is false; send true, or omit the task")
	}
	return task, nil
}

// taskMarker returns the token of a task.
func taskMarker(task string) string { return "<｜" + task + "｜>" }

// ask ends the prompt with the token of the task.
func (e *v4Encoder) ask() {
	e.open = false
	if e.task == taskAction {
		e.b.WriteString(deepseekAssistant)
		if e.thinking {
			e.b.WriteString(thinkOpen)
		} else {
			e.b.WriteString(thinkClose)
		}
	}
	e.b.WriteString(taskMarker(e.task))
}
