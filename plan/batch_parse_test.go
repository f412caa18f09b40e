package plan

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseBatch(t *testing.T) {
	for _, c := range []struct {
		text string
		want Batch
	}{
		{"extend:512,1024", NewBatch(ModeExtend, ExtendRequest(512, 0), ExtendRequest(1024, 0))},
		{"extend:256+256", NewBatch(ModeExtend, ExtendRequest(256, 256))},
		{"decode:10,3000, 2048", NewBatch(ModeDecode, DecodeRequest(10), DecodeRequest(3000), DecodeRequest(2048))},
		{"verify:4:100,5000", NewBatch(ModeVerify, VerifyRequest(4, 100), VerifyRequest(4, 5000))},
		{"draft:2:0", NewBatch(ModeDraft, DraftRequest(2, 0))},
		{"idle", Batch{Mode: ModeIdle}},
		{"extend:3x2000", NewBatch(ModeExtend, repeat(3, ExtendRequest(2000, 0))...)},
		{"mixed:9000,1+499", NewBatch(ModeMixed, ExtendRequest(9000, 0), ExtendRequest(1, 499))},
		{"mixed:extend:9000+1/decode:2x500/verify:4:7",
			NewBatch(ModeMixed, ExtendRequest(9000, 1), DecodeRequest(500), DecodeRequest(500), VerifyRequest(4, 7))},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := ParseBatch(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	for text, code := range map[string]Code{
		"":                    E20,
		"prefill:5":           E20,
		"extend:":             E26,
		"extend:a":            E26,
		"extend:-1":           E26,
		"decode:5+3":          E26,
		"verify:5":            E26,
		"verify:0:5":          E26,
		"idle:3":              E26,
		"mixed:idle:3":        E26,
		"extend:99999x5":      E26,
		"extend:99999999999":  E26,
		"extend:0x5":          E26,
		"mixed:extend:5//5":   E26,
		"decode:1,":           E26,
		"draft:two:5":         E26,
		"extend:5+":           E26,
		"mixed:mixed:5":       E26,
		"extend:5+5+5":        E26,
		"extend:2x2x2":        E26,
		"split-prefill:1:2:3": E26,
	} {
		t.Run("refuses "+text, func(t *testing.T) {
			_, err := ParseBatch(text)
			wantError(t, err, code)
		})
	}
	for text, says := range map[string]string{"decode:ax5": `"a" is not a length`,
		"decode:0x5":         "repeats a request 0 times",
		"decode:65536x5,1x3": "65537 requests", "verify:x:5": `"x" is not a length`} {
		if _, err := ParseBatch(text); !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
	if b, err := ParseBatch("decode:65535x5,3"); err != nil || len(b.Requests) != maxParsedRequests {
		t.Errorf("the largest batch: %v", err)
	}
}

// A batch without a mode is refused with the command for decodes that it was probably meant for.
func TestABatchWithoutAModeSuggestsDecodes(t *testing.T) {
	for text, try := range map[string]string{"3x2000": "decode:3x2000",
		"16": "decode:16xLEN, 16 sequences of LEN tokens", "ax5": "", "x": "", "walk:3x5": ""} {
		_, err := ParseBatch(text)
		if e := wantError(t, err, E20); e.Try != try {
			t.Errorf("%s: try %q, want %q", text, e.Try, try)
		}
	}
}

// FuzzParseBatch checks that any text is parsed as a batch or refused with an error, and that planning a parsed batch
// returns a plan or an error and does not panic.
func FuzzParseBatch(f *testing.F) {
	for _, s := range []string{"extend:512+3,4", "mixed:extend:1/decode:2/verify:3:4/draft:2:1", "idle", "decode:3x0",
		"verify:4:0"} {
		f.Add(s)
	}
	ours := newSetup(f, "sm90", kv("fp8")).resolve(f)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBatch(text)
		if err != nil {
			return
		}
		rows := 0
		for i := range b.Requests {
			rows += b.Rows(&ours, i)
		}
		if rows > 1<<20 {
			return // planning takes time in proportion to the launches, so large batches are skipped
		}
		if p, err := Build(ours, b); err == nil && p == nil {
			t.Fatalf("no plan and no error for %q", text)
		}
	})
}
