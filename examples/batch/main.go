// Batch reads lines of text from standard input, sends each line to the built-in model, several lines concurrently, and
// writes one JSON object per line, in the order of the input. A JSON schema limits every answer to three fields.
//
//	printf 'Sofia, aged 89, comes from Havana.\n' | go run ./examples/batch
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"

	"sparrow"
	"sparrow/chat"
	"sparrow/sample"
)

// schema is the JSON schema of every answer; tokens that would violate it are not sampled.
const schema = `{"type": "object", "additionalProperties": false, "required": ["name", "age", "city"],
	"properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}}}`

// atOnce is the number of concurrent requests; the engine computes them in one batch.
const atOnce = 8

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run reads lines from in, and writes one JSON object for each line to out.
func run(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	engine, err := sparrow.Open(ctx, sparrow.Config{}) // sparrow.Config{Model: "/path/to/model"} opens another model
	if err != nil {
		return err
	}
	defer engine.Close(ctx)
	var lines []string
	for s := bufio.NewScanner(in); s.Scan(); {
		lines = append(lines, s.Text())
	}
	answers, errs := make([]string, len(lines)), make([]error, len(lines))
	var wait sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, line := range lines {
		free <- struct{}{}
		wait.Go(func() {
			answers[i], errs[i] = extract(ctx, engine, line)
			<-free
		})
	}
	wait.Wait()
	for i := range lines {
		if errs[i] != nil {
			return fmt.Errorf("line %d: %w", i+1, errs[i])
		}
		if _, err := fmt.Fprintln(out, answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// extract asks the model for the fields of one line and returns the answer as JSON.
func extract(ctx context.Context, engine *sparrow.Engine, line string) (string, error) {
	sampling := sample.Default()
	sampling.Temperature = 0 // the most probable token is chosen each time, so that every run gives the same answer
	answer, err := engine.Generate(ctx, sparrow.Request{
		Chat: &chat.Request{AddGenerationPrompt: true, Messages: []chat.Message{
			{Role: chat.User, Content: "Return JSON with name, age and city. Text: " + line}}},
		Sampling:   sampling,
		Format:     sparrow.Format{Kind: sparrow.FormatSchema, Schema: []byte(schema)},
		Background: true, // the engine serves other requests first
	})
	if err != nil {
		return "", err
	}
	if c := answer.Choices[0]; c.Finish == sparrow.FinishStop {
		return c.Text, nil
	}
	return "", fmt.Errorf("the answer ended early: %v", answer.Choices[0].Finish)
}
