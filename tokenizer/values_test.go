package tokenizer

import "testing"

// After Flush a decoder begins a new text: the first white space is left out again.
func TestFlushedDecodersBeginAnew(t *testing.T) {
	tok := newSmall(t, charFile(), nil)
	d := tok.NewDecoder(nil)
	for range 2 {
		got := d.Next(305) + d.Next(305) + d.Flush()
		if want := tok.Decode([]int32{305, 305}, false); got != want || want != "ab ab" {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
