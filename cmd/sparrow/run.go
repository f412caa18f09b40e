package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/textfile"
	"sparrow/sample"
)

// defaultAnswerTokens is the maximum length of an answer without --max-tokens: a model with random weights, for
// example, never ends an answer and would fill the context. The limit leaves room for reasoning.
const defaultAnswerTokens = 2048

// runFlags holds the flags of `sparrow run`.
type runFlags struct {
	engineFlags
	system, file, schema string
	temperature          float64
	maxTokens            int
	seed                 int64
	think, trace, raw    bool
}

func runCommand() *cobra.Command { return new(runFlags).command() }

// command returns the command, whose flags set f.
func (f *runFlags) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [PROMPT]",
		Short: "Answer one prompt, or chat on the terminal",
		Long: `Run answers one prompt. The prompt is given as arguments, or on standard input ("-" or a pipe). On a terminal without a
prompt it opens a chat: /help lists its commands, /exit ends it, Ctrl-C stops an answer. The answer is written to
standard output; on a terminal reasoning is dimmed. Without --model the small model inside the binary runs.`,
		Example: `  sparrow run "Rolf plants 22 trees every day for 7 days. How many trees is that?"
  sparrow run --file report.txt "Tell me the locker number of Maya."
  sparrow run --json-schema '{"properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city":
    {"type": "string"}}, "required": ["name", "age", "city"], "additionalProperties": false, "type": "object"}' \
    "Return JSON with name, age and city. Text: Sofia, aged 89, comes from Havana."
  sparrow run --trace --kv fp8 "Goodbye"
  echo "What are you called?" | sparrow run -
  sparrow run --model /models/DeepSeek-V3.2 --think`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.system, "system", "", "system message")
	s.StringVar(&f.file, "file", "", "text file that is put before the question")
	s.Float64Var(&f.temperature, "temperature", 0, "sampling temperature: 0 always takes the most probable token")
	s.IntVar(&f.maxTokens, "max-tokens", defaultAnswerTokens,
		"maximum number of tokens of the answer, reasoning included; 0 means as many as the context holds")
	s.Int64Var(&f.seed, "seed", 0, "seed of random sampling; random by default")
	s.StringVar(&f.schema, "json-schema", "",
		"JSON schema that the answer must follow, or a file with one")
	s.BoolVar(&f.think, "think", false,
		"let the model reason before it answers (--think=false disables it if that is the default)")
	s.BoolVar(&f.trace, "trace", false, "show plans, prefix match and times on standard error")
	s.BoolVar(&f.raw, "raw", false, "complete the prompt unchanged, without a chat template")
	f.engineFlags.add(s)
	return c
}

func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	a, err := f.asker(cmd)
	if err != nil {
		return err
	}
	prompt, talk, err := readPrompt(cmd.InOrStdin(), args)
	if err != nil {
		return err
	}
	if talk && f.raw {
		return errors.New("run: --raw needs a prompt; give one, or - to read it from standard input")
	}
	f.noChat = f.raw
	e, err := f.open(cmd, nil)
	if err != nil {
		return err
	}
	a.engine = e
	noteDevice(cmd.ErrOrStderr(), e.Info())
	if talk {
		a.request.Trace = true // /plan prints the trace
		interrupts := make(chan os.Signal, 2)
		signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(interrupts)
		return errors.Join(newTalk(a, cmd.InOrStdin(), interrupts).run(cmd.Context()), closeNow(e))
	}
	_, err = a.ask(cmd.Context(), f.once(a, prompt))
	return errors.Join(err, closeNow(e))
}

// readPrompt returns the prompt from the arguments or from standard input. If there is neither and standard input is a
// terminal, talk is true and a chat begins.
func readPrompt(in io.Reader, args []string) (prompt string, talk bool, err error) {
	if len(args) == 0 && isTerminal(in) {
		return "", true, nil
	}
	if len(args) > 1 || len(args) == 1 && args[0] != "-" {
		if prompt = strings.Join(args, " "); strings.TrimSpace(prompt) == "" {
			return "", false, errors.New("run: the prompt is empty; give a text")
		}
		return prompt, false, nil
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return "", false, fmt.Errorf("run: standard input: %w", err)
	}
	if prompt = strings.TrimRight(string(text), "\r\n"); prompt == "" {
		return "", false, errors.New("run: the prompt on standard input is empty; give one as an argument")
	}
	return prompt, false, nil
}

// asker reads the files that flags name and prepares the request that all questions share.
func (f *runFlags) asker(cmd *cobra.Command) (*asker, error) {
	if err := counted(count{"max-tokens", f.maxTokens, 0}); err != nil {
		return nil, err
	}
	a := &asker{
		out: cmd.OutOrStdout(), side: cmd.ErrOrStderr(), trace: f.trace, assumed: !cmd.Flags().Changed("max-tokens"),
		request: sparrow.Request{Sampling: sample.Default(), MaxTokens: f.maxTokens, Trace: f.trace},
		chat:    chat.Request{AddGenerationPrompt: true},
	}
	a.terminal = isTerminal(a.out)
	a.request.Sampling.Temperature = f.temperature
	a.request.Sampling.Seed = f.seed
	if !cmd.Flags().Changed("seed") {
		a.request.Sampling.Seed = drawSeed()
	}
	if cmd.Flags().Changed("think") {
		a.chat.Thinking = &f.think
	}
	if f.raw && (f.system != "" || f.think) {
		return nil,
			errors.New(
				"run: --raw sends the prompt unchanged, so --system and --think cannot be used; omit one of them")
	}
	if f.system != "" {
		a.chat.Messages = []chat.Message{{Role: chat.System, Content: f.system}}
	}
	if f.schema != "" {
		text := []byte(f.schema)
		if !strings.HasPrefix(strings.TrimSpace(f.schema), "{") {
			var err error
			if text, err = textfile.Read(f.schema, textfile.Config); err != nil {
				return nil, fmt.Errorf("--json-schema: %w", err)
			}
		}
		a.request.Format = sparrow.Format{Kind: sparrow.FormatSchema, Schema: text}
		a.chat.ResponseFormat = text
	}
	if f.file != "" {
		text, err := readDocument(f.file)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		a.document = text
	}
	return a, a.request.Sampling.Validate()
}

// readDocument reads a text file.
func readDocument(path string) (string, error) {
	text, err := textfile.Read(path, textfile.Document)
	return strings.TrimSpace(string(text)), err
}

// drawSeed returns a random seed below 2^53: JSON readers with float64 numbers round larger ones. crypto/rand never
// fails.
func drawSeed() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) >> 11)
}

// once returns the request for a single prompt.
func (f *runFlags) once(a *asker, prompt string) sparrow.Request {
	prompt = a.withDocument(prompt)
	if f.raw {
		r := a.request
		r.Prompt = prompt
		return r
	}
	return a.conversation([]chat.Message{{Role: chat.User, Content: prompt}})
}
