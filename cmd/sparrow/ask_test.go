package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/testkit/await"
	"sparrow/sample"
)

const (
	treesQuestion = "Rolf plants 22 trees every day for 7 days. How many trees is that?"
	treesAnswer   = "22 * 7 = 154\n#### 154\n"
)

func TestRunAnswersFromArgumentsAndStandardInput(t *testing.T) {
	for _, c := range []struct {
		name, in string
		args     []string
	}{
		{"an argument", "", []string{treesQuestion}},
		{"words", "", strings.Fields(treesQuestion)},
		{"a dash", treesQuestion + "\n", []string{"-"}},
		{"a pipe", treesQuestion + "\n", nil},
	} {
		out, side := mustDrive(t, c.in, append([]string{"run"}, c.args...)...)
		if out != treesAnswer || side != "" {
			t.Errorf("%s: answer %q, beside it %q", c.name, out, side)
		}
	}
}

func TestRunReadsADocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text.txt")
	text := "Near the narrow stone there is a train that stands slowly. The pet of Dan is goat. When the market " +
		"falls, the heavy letter is late. " +
		"The locker number of Tina is 100. The pet of Maya is owl. The gentle boat drifts for a while.\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := mustDrive(t, "", "run", "--file", file,
		"Tell me the pet of Maya."); out != "The pet of Maya is owl.\n" {
		t.Errorf("answer %q", out)
	}
}

func TestRunFollowsASchema(t *testing.T) {
	file := filepath.Join(t.TempDir(), "person.json")
	schema :=
		`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"city":{"type":"string"}},"required":["name","age","city"],"additionalProperties":false}`
	if err := os.WriteFile(file, []byte(schema), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{file, schema} {
		out, _ := mustDrive(t, "", "run", "--json-schema", given,
			"Return JSON with name, age and city. Text: Sofia, aged 89, comes from Havana.")
		var person struct {
			Name, City string
			Age        int
		}
		if err := json.Unmarshal([]byte(out), &person); err != nil || person.Name != "Sofia" || person.Age != 89 ||
			person.City != "Havana" {
			t.Errorf("answer %q: %+v, %v", out, person, err)
		}
	}
}

func TestRunTracesPlansPrefixAndTimes(t *testing.T) {
	out, side := mustDrive(t, "", "run", "--trace", "--kv", "fp8", treesQuestion)
	if out != treesAnswer {
		t.Errorf("answer %q", out)
	}
	for _, part := range []string{"prefix   matched 0 of", "times    queued", "prefill", "plan     ",
		"dense-prefill rows", "fp8-656", "why: ", "tokens   29 in (0 from the cache)", "finish stop"} {
		if !strings.Contains(side, part) {
			t.Errorf("the trace lacks %q:\n%s", part, side)
		}
	}
}

func TestRunRawCompletesText(t *testing.T) {
	out, _ := mustDrive(t, "", "run", "--raw", "--max-tokens", "12", "Question: "+treesQuestion+"\nAnswer:")
	if !strings.Contains(out, "22 * 7") {
		t.Errorf("completion %q", out)
	}
}

func TestRunSaysWhenItIsCutOff(t *testing.T) {
	out, side := mustDrive(t, "", "run", "--max-tokens", "3", treesQuestion)
	if !strings.HasPrefix(treesAnswer, strings.TrimSuffix(out, "\n")) ||
		!strings.Contains(side, "cut off: --max-tokens 3") {
		t.Errorf("answer %q, beside it %q", out, side)
	}
}

// If the model never ends an answer by itself, the default token limit ends it, or the end of the context if that is
// reached first.
func TestRunLimitsAnAnswerThatNeverEnds(t *testing.T) {
	e, err := sparrow.Open(context.Background(), sparrow.Config{CacheTokens: 256, ContextTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer closeNow(e)
	for _, c := range []struct {
		name    string
		most    int
		assumed bool
		want    string
	}{
		{"the default", 8, true, "(cut off: 8 tokens, the default limit; --max-tokens N sets another " +
			"limit, --max-tokens 0 only that of the context)\n"},
		{"the default in a small context", defaultAnswerTokens, true, "(cut off: the context is full)\n"},
		{"a number", 8, false, "(cut off: --max-tokens 8)\n"},
		{"no limit", 0, false, "(cut off: the context is full)\n"},
	} {
		var side bytes.Buffer
		a := &asker{engine: e, out: io.Discard, side: &side, assumed: c.assumed,
			request: sparrow.Request{Sampling: sample.Default(), MaxTokens: c.most, IgnoreEOS: true},
			chat:    chat.Request{AddGenerationPrompt: true}}
		if _, err := a.ask(t.Context(),
			a.conversation([]chat.Message{{Role: chat.User, Content: "Goodbye"}})); err != nil ||
			side.String() != c.want {
			t.Errorf("%s: %v, beside the answer %q, want %q", c.name, err, &side, c.want)
		}
	}
	if _, _, err := drive("", "run", "--context", "64", "--max-tokens", "100", "Goodbye"); err == nil ||
		!strings.Contains(err.Error(), "max_tokens") {
		t.Errorf("a number that somebody gave gives way: %v", err)
	}
	if out, _ := mustDrive(t, "", "run", "--context", "64", "Goodbye"); out != "Goodbye!\n" {
		t.Errorf("the default does not give way to a small context: %q", out)
	}
}

func TestRunFailsWithAReason(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--json-schema", []string{"--json-schema", "nowhere.json", "hi"}},
		{"--file", []string{"--file", "nowhere.txt", "hi"}},
		{"temperature", []string{"--temperature", "9", "hi"}},
		{"--raw", []string{"--raw", "--system", "x", "hi"}},
		{"--dense", []string{"--dense", "maybe", "hi"}},
		{"no kernels named", []string{"--kernels", "abacus", "hi"}},
		{"config.json", []string{"--model", t.TempDir(), "hi"}},
		{"empty", []string{"-"}},
		{"max_tokens", []string{"--max-tokens", "999999", "hi"}},
		{"--step-tokens -1", []string{"--step-tokens", "-1", "hi"}},
	} {
		if out, _, err := drive("", append([]string{"run"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %q, error %v, want it to speak of %s", c.args, out, err, c.want)
		}
	}
	var out, side bytes.Buffer
	if status := run(context.Background(), []string{"run", "--kernels", "abacus", "hi"}, &out, &side); status != 1 ||
		!strings.HasPrefix(side.String(), "sparrow: ") {
		t.Errorf("status %d, %q", status, &side)
	}
}

func TestReasoningIsDimmedAndApart(t *testing.T) {
	deltas := []chat.Delta{{Kind: chat.DeltaReasoning, Text: "hm"}, {Kind: chat.DeltaReasoning, Text: "."},
		{Kind: chat.DeltaContent, Text: "yes"}}
	show := func(p *printer) {
		for _, d := range deltas {
			p.delta(d)
		}
		p.end()
	}
	var screen, pipe, side bytes.Buffer
	show(&printer{out: &screen, reasoning: &screen, dim: true})
	if screen.String() != dimOn+"hm."+dimOff+"\nyes\n" {
		t.Errorf("a terminal shows %q", &screen)
	}
	show(&printer{out: &pipe, reasoning: &side})
	if pipe.String() != "yes\n" || side.String() != "hm.\n" {
		t.Errorf("a pipe gets %q, beside it %q", &pipe, &side)
	}
	p := &printer{out: failing{}, reasoning: failing{}}
	show(p)
	if p.err == nil {
		t.Error("a failing output is not noticed")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// startTalk opens the built-in model for a chat that reads its lines from in and prints to out.
func startTalk(t *testing.T, in io.Reader, out io.Writer) (*talk, chan os.Signal) {
	t.Helper()
	e, err := sparrow.Open(context.Background(), sparrow.Config{CacheTokens: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closeNow(e); err != nil {
			t.Error(err)
		}
	})
	interrupts := make(chan os.Signal, 2)
	a := &asker{engine: e, out: out, side: out, request: sparrow.Request{Sampling: sample.Default()},
		chat: chat.Request{AddGenerationPrompt: true}}
	a.request.Sampling.Temperature = 0
	return newTalk(a, in, interrupts), interrupts
}

func TestTalkKeepsHistoryUntilReset(t *testing.T) {
	var out bytes.Buffer
	k, _ := startTalk(t, strings.NewReader("Goodbye\n\n/what\n"+treesQuestion+"\n/reset\nSee you\n/exit\nnever read\n"),
		&out)
	if err := k.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := "> Goodbye!\n> > (\"/what\" is not a command: " + talkHelp + ")\n> " + treesAnswer +
		"> (forgotten)\n> Goodbye!\n> "
	if _, got, _ := strings.Cut(out.String(), "\n"); got != want {
		t.Errorf("the conversation was\n%s\nwant\n%s", got, want)
	}
	if len(k.history) != 2 || k.history[0].Content != "See you" || k.history[1].Role != chat.Assistant ||
		k.history[1].Content != "Goodbye!" {
		t.Errorf("after /reset and one question the history is %+v", k.history)
	}
}

func TestTalkSurvivesABadQuestionAndEndsWithInput(t *testing.T) {
	var out bytes.Buffer
	k, _ := startTalk(t, strings.NewReader(strings.Repeat("many words ", 4000)+"\nGoodbye\n"), &out)
	if err := k.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "this question was dropped") || !strings.Contains(s, "Goodbye!") ||
		len(k.history) != 2 {
		t.Errorf("history of %d after\n%s", len(k.history), s)
	}
}

// In the tests below the model never ends an answer by itself: only a signal stops the answer.

func TestInterruptStopsTheAnswerAndASecondOneLeaves(t *testing.T) {
	out := &watcher{met: "#### 154"}
	k, interrupts, ended := endlessTalk(t, out, os.Interrupt)
	await.True(t, "the next prompt comes", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("one interrupt left the chat: %v\n%s", err, out)
		default:
		}
		return strings.Count(out.String(), "> ") >= 2
	})
	interrupts <- os.Interrupt
	mustEnd(t, ended, errInterrupted)
	if len(k.history) != 2 || !strings.Contains(k.history[1].Content, "#### 154") {
		t.Errorf("the stopped answer is not remembered: %+v", k.history)
	}
}

func TestTerminationLeavesDuringAnAnswer(t *testing.T) {
	_, _, ended := endlessTalk(t, &watcher{met: "22"}, syscall.SIGTERM)
	mustEnd(t, ended, nil)
}

// endlessTalk starts a chat whose first answer never ends, and sends the signal as soon as the output contains the
// words that out waits for.
func endlessTalk(t *testing.T, out *watcher, s os.Signal) (*talk, chan os.Signal, <-chan error) {
	t.Helper()
	in, hold := io.Pipe()
	t.Cleanup(func() { hold.Close() })
	k, interrupts := startTalk(t, in, out)
	k.request.IgnoreEOS = true
	out.hit = func() { interrupts <- s }
	ended := make(chan error, 1)
	go func() { ended <- k.run(context.Background()) }()
	if _, err := io.WriteString(hold, treesQuestion+"\n"); err != nil {
		t.Fatal(err)
	}
	return k, interrupts, ended
}

func mustEnd(t *testing.T, ended <-chan error, want error) {
	t.Helper()
	if err := await.Value(t, "the chat ends", ended); !errors.Is(err, want) {
		t.Errorf("the chat ended with %v, want %v", err, want)
	}
}

// Raw prompts work with a broken chat template; chats fail with an error that names the template's file.
func TestRawPromptsNeedNoTemplate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.gguf")
	changedGGUF(t, path, func(m *llamacpp.Model) {
		settings := map[string]any{}
		if err := json.Unmarshal(m.TokenizerConfig, &settings); err != nil {
			t.Fatal(err)
		}
		settings["chat_template"] = "{% for x in %}"
		var err error
		if m.TokenizerConfig, err = json.Marshal(settings); err != nil {
			t.Fatal(err)
		}
	})
	args := []string{"run", "--kernels", "cpu", "--max-tokens", "8", "--model", path, "A garden is"}
	if out, _ := mustDrive(t, "", append(args, "--raw")...); strings.TrimSpace(out) == "" {
		t.Error("no answer")
	}
	_, _, err := drive("", args...)
	for _, want := range []string{path + ": chat template failed: line 1", "correct the template", "run --raw"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
