package tokenizer

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A text with more tokens than the limit is refused; a text with exactly that many is encoded. A text that is far too
// long is refused with little time and memory, whether it is one piece or many.
func TestLimitOfTokens(t *testing.T) {
	tok := load(t, "deepseek_v3")
	text := strings.Repeat("The price of 12 lamps is 345.\n", 20)
	all, err := tok.Encode(text, EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := tok.Encode(text, EncodeOptions{Limit: len(all)})
	if err != nil || !slices.Equal(got, all) {
		t.Errorf("a limit of exactly %d tokens: %d tokens, %v", len(all), len(got), err)
	}
	for _, limit := range []int{1, len(all) / 2, len(all) - 1} {
		dst := []int32{7}
		got, err := tok.Append(dst, text, EncodeOptions{Limit: limit})
		if !errors.Is(err, ErrTooLong) || len(got) != 1 {
			t.Errorf("a limit of %d for %d tokens: %d tokens, %v", limit, len(all), len(got), err)
		}
	}
	for name, text := range map[string]string{
		"one piece": strings.Repeat("a", 8<<20), "spaces": strings.Repeat(" ", 8<<20),
		"many pieces": strings.Repeat("a b\n", 2<<20), "digits": strings.Repeat("1", 8<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := tok.Encode(text, EncodeOptions{Limit: 1000})
		runtime.ReadMemStats(&after)
		mb := (after.TotalAlloc - before.TotalAlloc) >> 20
		if !errors.Is(err, ErrTooLong) || mb > 1 {
			t.Errorf("%s: %v after %d MB", name, err, mb)
		}
	}
}
