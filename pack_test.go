package sparrow

import (
	"maps"
	"strings"
	"testing"

	"sparrow/internal/sysmem"
)

// Packed weights are the same weights: every row of logits has the same bits, for models of both families.
func TestPackingChangesNothing(t *testing.T) {
	for _, dir := range []string{"", speckV4(t)} {
		var logits [2]map[rowKey]uint64
		for i, pack := range []bool{false, true} {
			l := keepLogits()
			e := start(t, Config{Model: dir, Pack: pack, Policy: deterministic("")}, l.watch)
			generate(t, e, Request{ID: "packed", Tokens: tokens(1, 300), Sampling: greedy(), MaxTokens: 5, IgnoreEOS: true})
			logits[i] = l.rows
		}
		if len(logits[0]) == 0 || !maps.Equal(logits[0], logits[1]) {
			t.Errorf("model %q: %d rows of logits, packed %d, not the same bits", dir, len(logits[0]), len(logits[1]))
		}
	}
}

// Weights that cannot be copied are refused before they are: with sizes, and with what to do.
func TestPackingBeyondTheMachineIsRefused(t *testing.T) {
	if sysmem.Available() == 0 {
		t.Skip("this system does not say how much memory is free")
	}
	err := packable(Config{Pack: true}, 1<<50)
	if err == nil || !strings.Contains(err.Error(), "1048576.0 GiB of weights") || !strings.Contains(err.Error(), "without Pack (--pack)") {
		t.Errorf("packing a PiB: %v", err)
	}
	for _, c := range []struct {
		pack  bool
		bytes int64
	}{{true, 1 << 20}, {false, 1 << 50}} {
		if err := packable(Config{Pack: c.pack}, c.bytes); err != nil {
			t.Errorf("pack %v, %d bytes: %v", c.pack, c.bytes, err)
		}
	}
}
