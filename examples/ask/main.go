// Ask opens the built-in model and asks it one question.
package main

import (
	"context"
	"fmt"
	"log"

	"sparrow"
	"sparrow/chat"
)

func main() {
	ctx := context.Background()
	engine, err := sparrow.Open(ctx, sparrow.Config{}) // sparrow.Config{Model: "/path/to/model"} opens another model
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	question := chat.Message{Role: "user", Content: "What are you called?"}
	answer, err := engine.Generate(ctx, sparrow.Request{
		Chat: &chat.Request{Messages: []chat.Message{question}, AddGenerationPrompt: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}
