package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/record"
)

// recording returns the events of an answer whose prompt has two chunks of rows and whose second token has no text yet.
func recording(r sparrow.Request) ([]sparrow.Event, error) {
	row := func(position int) *record.Rows {
		return &record.Rows{Rows: []record.Row{{Position: position,
			Layers: []record.Layer{{Layer: 0, Keys: position + 1, Selected: []byte{0, 1}}}}}}
	}
	first := row(4)
	first.NotComputed = []record.Range{{0, 4}}
	token := func(text string, position int) sparrow.Event {
		ev := sparrow.Event{Text: text, Tokens: []sparrow.Token{{ID: 65}}, Recorded: row(position)}
		if text != "" {
			ev.Deltas = []chat.Delta{{Kind: chat.DeltaContent, Text: text}}
		}
		return ev
	}
	return []sparrow.Event{{Recorded: first}, {Recorded: row(5)}, token("a", 6), token("", 7), token("c", 8),
		{Finish: sparrow.FinishStop, Usage: usage(3)}}, nil
}

// Every recorded row is sent once and in order, in a stream and in a whole answer, at the latest with the chunk of the
// token that it produced.
func TestRecordedRowsAreSentWithTheirTokens(t *testing.T) {
	e := newFake(recording)
	_, hs := start(t, e, Options{})
	want := []int{4, 5, 6, 7, 8}
	for path, ask := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`, "/v1/completions": `"prompt":"x"`,
	} {
		body := `{"model":"sparrow-test",` + ask + `,"sparrow":{"selections":{"layers":[0],"tokens":[4,9],"scores":true},` +
			`"experts":true}`
		whole := post(t, hs.URL+path, body+`}`)
		var answer struct {
			Choices []struct{ Sparrow *record.Rows }
		}
		if err := json.Unmarshal([]byte(whole.body), &answer); err != nil || whole.status != 200 {
			t.Fatalf("%s: %d %v: %s", path, whole.status, err, whole.body)
		}
		got := answer.Choices[0].Sparrow
		if !reflect.DeepEqual(positionsOf(got), want) || len(got.NotComputed) != 1 {
			t.Errorf("%s: rows %v, %v not computed", path, positionsOf(got), got.NotComputed)
		}
		last := e.requests[len(e.requests)-1]
		if !reflect.DeepEqual(last.Record, &sparrow.Record{Selections: true, Layers: []int{0}, Scores: true,
			Experts: true, Tokens: sparrow.RecordRange, From: 4, To: 9}) {
			t.Errorf("%s: requested from the engine: %+v", path, last.Record)
		}

		var sum *record.Rows
		var with []string // the contents of each chunk with rows
		for _, line := range strings.Split(post(t, hs.URL+path, body+`,"stream":true}`).body, "\n\n") {
			text, ok := strings.CutPrefix(line, "data: ")
			if !ok || text == "[DONE]" {
				continue
			}
			var chunk struct {
				Choices []struct {
					Text    string
					Delta   openai.Delta
					Sparrow *record.Rows
				}
			}
			if err := json.Unmarshal([]byte(text), &chunk); err != nil {
				t.Fatalf("%s: %v: %s", path, err, text)
			}
			for _, c := range chunk.Choices {
				if c.Sparrow != nil {
					with = append(with, c.Text+c.Delta.Content)
				}
				sum = sum.With(c.Sparrow)
			}
		}
		if !reflect.DeepEqual(sum, got) {
			t.Errorf("%s: streamed rows %v, whole %v", path, positionsOf(sum), positionsOf(got))
		}
		if say := []string{"", "", "a", "c"}; !reflect.DeepEqual(with, say) {
			t.Errorf("%s: rows come with %q, want %q", path, with, say)
		}
	}
}

func positionsOf(r *record.Rows) (list []int) {
	for i := range r.Rows {
		list = append(list, r.Rows[i].Position)
	}
	return list
}

// A recorded answer can be sent back unchanged; a request without "record" records nothing.
func TestRecordedRowsAreReplayed(t *testing.T) {
	e := newFake(recording)
	_, hs := start(t, e, Options{})
	rows, _ := recording(sparrow.Request{})
	text, err := json.Marshal(rows[0].Recorded)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		extra  string
		record *sparrow.Record
		replay []record.Row
	}{
		{`{"replay":` + string(text) + `}`, nil, rows[0].Recorded.Rows},
		{`{"replay":{"rows":[]}}`, nil, []record.Row{}},
		{`{"experts":true}`, &sparrow.Record{Experts: true}, nil},
		{`{"selections":{}}`, &sparrow.Record{Selections: true}, nil},
		{`{"selections":{"layers":"all","tokens":"all"}}`, &sparrow.Record{Selections: true, Tokens: sparrow.RecordAll},
			nil},
		{`{"selections":null,"experts":false}`, nil, nil},
	} {
		got := post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":"x","sparrow":`+c.extra+`}`)
		if got.status != 200 {
			t.Fatalf("%s: %d %s", c.extra, got.status, got.body)
		}
		last := e.requests[len(e.requests)-1]
		if !reflect.DeepEqual(last.Record, c.record) || !reflect.DeepEqual(last.Replay, c.replay) {
			t.Errorf("%s: the engine was asked to record %+v and replay %+v", c.extra, last.Record, last.Replay)
		}
	}
}
