package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// The instruction texts are byte for byte those that the model was trained on: their lengths and hashes equal the
// published values.
func TestInstructionTextsAreByteExact(t *testing.T) {
	for _, c := range []struct {
		name, text, sum string
		bytes, newlines int
	}{
		{"V3.2 tools prefix", v32ToolsPrefix, "963a72ee9be43f07d21bec2348ed2d7e45185e4b502f2a4da35a540299dc2b03", 1133,
			30},
		{"V3.2 response format prefix", dsmlFormatPrefix,
			"5200f58413f49f3957c43beddbc97bead023232cb5934fad0c1997c30c139112", 80, 3},
		{"V4 tools prefix", v4ToolsPrefix, "c7c9042638154a237b5d1bd48be772374a35a4d24c5cacfd1ffbd92703da329c", 890, 22},
		{"V4 tools suffix", v4ToolsSuffix, "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7", 99, 3},
		{"V4 strong effort", v4EffortStrong, "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7", 476,
			4},
		{"V4 effort beyond", v4EffortBeyond, "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c", 528,
			4},
	} {
		sum := sha256.Sum256([]byte(c.text))
		if got := hex.EncodeToString(sum[:]); got != c.sum {
			t.Errorf("%s: SHA-256 %s, want %s", c.name, got, c.sum)
		}
		if len(c.text) != c.bytes || strings.Count(c.text, "\n") != c.newlines {
			t.Errorf("%s: %d bytes and %d newlines, want %d and %d", c.name, len(c.text), strings.Count(c.text, "\n"),
				c.bytes, c.newlines)
		}
	}
	// Without any tool, the reference encoder writes a block of 1147 bytes.
	if n := len(v32ToolsPrefix + v32ToolsSuffix); n != 1147 {
		t.Errorf("tools block without tools has %d bytes, want 1147", n)
	}
}
