package clienttest

import (
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/server"
)

func TestProbe(t *testing.T) {
	at := time.Now()
	c := start(t, sparrow.Config{}, server.Options{})
	t.Log(time.Since(at))
	cl := c.client()
	for _, q := range []string{"Rolf plants 22 trees every day for 7 days. How many trees is that?", "What are you called?", "Copy this text: red, apple, orange"} {
		at = time.Now()
		r, err := cl.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: model, Temperature: openai.Float(0), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(q)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v %s", time.Since(at), r.RawJSON())
	}
	st := c.engine.Info()
	t.Logf("%+v", st)
}
