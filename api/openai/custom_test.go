package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The input of a custom tool is returned unchanged, for any text and for any split of its arguments into pieces.
func TestCustomInputComesOutWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "input")
		arguments := CustomArguments(want)
		if rapid.Bool().Draw(t, "escaped") { // writes every character that is not ASCII as an escape
			text, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			arguments = `{"other":[1,{"input":"no"}],"input":` + ascii(string(text)) + `,"more":"x"}`
		}
		var r CustomInput
		var got strings.Builder
		for len(arguments) > 0 {
			n := rapid.IntRange(1, len(arguments)).Draw(t, "piece")
			got.WriteString(r.Feed(arguments[:n]))
			arguments = arguments[n:]
		}
		if got.String() != want {
			t.Fatalf("%q came out as %q", want, got.String())
		}
	})
}

// ascii returns the text with each character that is not ASCII replaced by its \u escape.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		const digits = "0123456789abcdef"
		unit := func(u rune) {
			b.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte(digits[u>>shift&15])
			}
		}
		if r >= 0x10000 {
			unit(0xd800 + (r-0x10000)>>10)
			unit(0xdc00 + (r-0x10000)&0x3ff)
		} else {
			unit(r)
		}
	}
	return b.String()
}

func TestCustomInputThatIsNoString(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"input": {"a": "}"}}`: `{"a": "}"}`, `{"input": 12, "x": 1}`: "12", `{}`: "", `{"input": "a`: "a",
		`{"input": [1,"]"]}`:    `[1,"]"]`,
		`{"input":"\q\ud800x"}`: "\ufffdx",
	} {
		var r CustomInput
		if got := r.Feed(arguments); got != want {
			t.Errorf("%s: %q, want %q", arguments, got, want)
		}
	}
}

func TestSealedReasoning(t *testing.T) {
	for _, text := range []string{"", "Hmm.", "é\n😀"} {
		if got, ok := Unseal(Seal(text)); !ok || got != text {
			t.Errorf("%q came back as %q, %v", text, got, ok)
		}
	}
	for _, other := range []string{"", "opaque", "sparrow1.", "sparrow1.AAAA", "sparrow1.!", Seal("x") + "A"} {
		if _, ok := Unseal(other); ok {
			t.Errorf("%q was taken for ours", other)
		}
	}
}
