package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// detok implements the decoder of tokenizer.json: the bytes that a token represents, and the text that is stripped from
// the beginning of a text.
type detok struct {
	byteLevel    bool
	byteFallback bool
	replace      [][2][]byte // pairs of text and replacement, applied in order
	fused        bool        // whether later components apply to the whole text
	stripChar    string      // text that is stripped from the beginning of a text
	stripCount   int         // maximum number of times that it is stripped
}

// newDetok reads the decoder of tokenizer.json. A byte-level pre-tokenizer needs a byte-level decoder, which is also
// the default.
func newDetok(value json.RawMessage, byteLevel bool) (*detok, error) {
	d := new(detok)
	if err := eachComponent("decoder", "decoders", value, d.add); err != nil {
		return nil, err
	}
	if byteLevel && value == nil {
		d.byteLevel = true
	}
	if d.byteLevel != byteLevel {
		return nil,
			fmt.Errorf("%w: pre-tokenizer byte-level is %t but decoder byte-level is %t; supported: both or neither",
				ErrUnsupported, byteLevel, d.byteLevel)
	}
	return d, nil
}

// add adds a component of the decoder.
func (d *detok) add(kind string, value json.RawMessage) error {
	if d.fused && (kind == "ByteLevel" || kind == "ByteFallback" || kind == "Replace") {
		return fmt.Errorf("%w: decoder %s comes after Fuse; it must come before", ErrUnsupported, kind)
	}
	switch kind {
	case "ByteLevel":
		d.byteLevel = true
		return nil
	case "ByteFallback":
		d.byteFallback = true
		return nil
	case "Fuse":
		d.fused = true
		return nil
	case "Replace":
		old, content, err := readReplace("decoder", value)
		if err == nil {
			d.replace = append(d.replace, [2][]byte{[]byte(old), []byte(content)})
		}
		return err
	case "Strip":
		return d.addStrip(value)
	}
	return unsupported("decoder", kind, "Sequence", "ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip")
}

func (d *detok) addStrip(value json.RawMessage) error {
	var c struct {
		Content     string
		Start, Stop int
	}
	if err := decodeJSON("decoder Strip", value, &c); err != nil {
		return err
	}
	if !d.fused || c.Stop != 0 || d.stripCount != 0 || c.Content == "" || c.Start < 0 {
		return fmt.Errorf("%w: decoder Strip of %q, start %d, stop %d; want at most one Strip, after Fuse and from "+
			"the start", ErrUnsupported, c.Content, c.Start, c.Stop)
	}
	d.stripChar, d.stripCount = c.Content, c.Start
	return nil
}

// bytes returns the bytes that a token of a character-level vocabulary represents.
func (d *detok) bytes(word []byte) []byte {
	if d.byteFallback {
		if b, ok := fallbackByte(string(word)); ok {
			return []byte{b}
		}
	}
	for _, r := range d.replace {
		word = bytes.ReplaceAll(word, r[0], r[1])
	}
	return word
}
