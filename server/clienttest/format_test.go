//go:build openai

package clienttest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"sparrow"
	"sparrow/server"
)

const petQuestion = "Read the sentence and give name, age, pet and color as JSON.\nTina has a purple parrot and is " +
	"28 years old."

func TestJSONMode(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	p := ask(petQuestion)
	p.ResponseFormat.OfJSONObject = &openai.ResponseFormatJSONObjectParam{}
	if got := normal(t, text(t, s.chat(t, p))); got != `{"age":28,"color":"purple","name":"Tina","pet":"parrot"}` {
		t.Errorf("answer %s", got)
	}
	// Without a schema the model answers this question with a sentence.
	p.Messages = ask(nameQuestion).Messages
	p.MaxTokens = openai.Int(200)
	r := s.chat(t, p)
	if r.Choices[0].FinishReason == "stop" {
		var object map[string]any
		if err := json.Unmarshal([]byte(text(t, r)), &object); err != nil {
			t.Errorf("answer %q: %v", text(t, r), err)
		}
	} else if !strings.HasPrefix(strings.TrimLeft(text(t, r), " \n"), "{") {
		t.Errorf("answer %q is not the start of an object", text(t, r))
	}
}

// order is the type that orderSchema describes.
type order struct {
	Color *string  `json:"color"`
	Count *int     `json:"count"`
	Tags  []string `json:"tags"`
	Fast  *bool    `json:"fast"`
}

var orderSchema = map[string]any{
	"type": "object",
	"properties": map[string]any{
		"color": map[string]any{"enum": []string{"ultramarine", "ochre"}},
		"count": map[string]any{"type": "integer", "minimum": 3, "maximum": 12},
		"tags": map[string]any{"type": "array", "minItems": 2, "maxItems": 3,
			"items": map[string]any{"type": "string", "maxLength": 5}},
		"fast": map[string]any{"type": "boolean"},
	},
	"required":             []string{"color", "count", "tags", "fast"},
	"additionalProperties": false,
}

// check fails the test unless text is an order that satisfies orderSchema.
func (o *order) check(t *testing.T, text string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil || d.More() {
		t.Errorf("%q: %v", text, err)
		return
	}
	if o.Color == nil || o.Count == nil || o.Fast == nil ||
		!slices.Contains([]string{"ultramarine", "ochre"}, *o.Color) || *o.Count < 3 || *o.Count > 12 ||
		len(o.Tags) < 2 || len(o.Tags) > 3 {
		t.Errorf("%q does not follow the schema", text)
	}
	for _, tag := range o.Tags {
		if len([]rune(tag)) > 5 {
			t.Errorf("%q has a tag of more than 5 characters", text)
		}
	}
}

func TestJSONSchema(t *testing.T) {
	s := start(t, sparrow.Config{}, server.Options{})
	// The model was not trained on such orders, so only the schema can produce this answer, at any temperature.
	p := ask(nameQuestion)
	p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{
		JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "order", Strict: openai.Bool(true),
			Schema: orderSchema},
	}
	var drawn string
	for seed := range int64(1 + schemaDraws) {
		temperature := min(2, 0.7*float64(seed))
		p.Seed, p.Temperature = openai.Int(seed), openai.Float(temperature)
		r := s.chat(t, p)
		if r.Choices[0].FinishReason != "stop" {
			t.Errorf("temperature %v ended by %s", temperature, r.Choices[0].FinishReason)
		}
		drawn = text(t, r)
		new(order).check(t, drawn)
	}
	pieces := s.stream(t, p)
	if got := pieces.Choices[0].Message.Content; got != drawn {
		t.Errorf("streamed %q, whole %q", got, drawn)
	}
}
