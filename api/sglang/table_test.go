package sglang

import (
	"testing"

	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/wiretable"
	"sparrow/internal/wire"
)

// Every field of a body is refused, or changes the request or the list of ignored fields. The golden table records the
// effect of each field.
func TestTableOfFields(t *testing.T) {
	type decoded struct {
		Request *Request
		Ignored []string
	}
	decode := func(body []byte) (any, error) {
		d := &wire.Decoder{}
		r, bad := Decode("default")(d, body)
		if bad != nil {
			return nil, bad
		}
		return decoded{r, d.Ignored}, nil
	}
	lines := wiretable.Lines(t, "generate", `{"input_ids":[1,2],"sampling_params":{}}`, decode, wiretable.At(fields),
		wiretable.At(samplingFields, "sampling_params").With("-2", "3.5"))
	lines = append(lines, wiretable.Lines(t, "text", `{"text":"a"}`, decode,
		wiretable.Object{Names: []string{"input_ids", "text", "return_logprob"}})...)
	table.Check(t, "fields.txt", lines)
}
