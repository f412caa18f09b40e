package sparrow_test

import (
	"context"
	"fmt"
	"log"

	"sparrow"
	"sparrow/chat"
	"sparrow/sample"
)

// This example opens the built-in model, asks it a question, and closes it.
func Example() {
	ctx := context.Background()
	engine, err := sparrow.Open(ctx, sparrow.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	sampling := sample.Default()
	sampling.Temperature = 0
	answer, err := engine.Generate(ctx, sparrow.Request{
		Chat: &chat.Request{
			Messages:            []chat.Message{{Role: "user", Content: "What are you called?"}},
			AddGenerationPrompt: true,
		},
		Sampling: sampling,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
	fmt.Println(answer.Choices[0].Finish)
	// Output:
	// I am Sparrow, a tiny language model with sparse attention.
	// stop
}

// This example reads an answer while the answer is generated. The last event contains the usage.
func ExampleEngine_Stream() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // a cancelled request releases its memory
	engine, err := sparrow.Open(ctx, sparrow.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	sampling := sample.Default()
	sampling.Temperature = 0
	stream, err := engine.Stream(ctx, sparrow.Request{
		Chat: &chat.Request{
			Messages:            []chat.Message{{Role: "user", Content: "Sort from small to large: 18, 68, 0, 7, 86"}},
			AddGenerationPrompt: true,
		},
		Sampling: sampling,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	for event := range stream.All() {
		fmt.Print(event.Text)
		if event.Err != nil {
			log.Fatal(event.Err)
		}
		if event.Usage != nil {
			fmt.Printf("\n%d tokens asked, %d answered\n", event.Usage.PromptTokens, event.Usage.CompletionTokens)
		}
	}
	// Output:
	// 0, 7, 18, 68, 86
	// 29 tokens asked, 17 answered
}

// This example makes the answer follow a JSON schema.
func ExampleEngine_Generate_schema() {
	ctx := context.Background()
	engine, err := sparrow.Open(ctx, sparrow.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	sampling := sample.Default()
	sampling.Temperature = 0
	answer, err := engine.Generate(ctx, sparrow.Request{
		Chat: &chat.Request{
			Messages: []chat.Message{{Role: "user",
				Content: "Return JSON with name, age and city. Text: Sofia, aged 89, comes from Havana."}},
			AddGenerationPrompt: true,
		},
		Sampling: sampling,
		Format: sparrow.Format{Kind: sparrow.FormatSchema, Schema: []byte(`{
			"type": "object",
			"properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}},
			"required": ["name", "age", "city"],
			"additionalProperties": false
		}`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Text)
	// Output:
	// {"name": "Sofia", "age": 89, "city": "Havana"}
}
