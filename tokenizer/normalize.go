package tokenizer

import (
	"encoding/json"
	"strings"
)

// normalizer changes text before it is divided into pieces.
type normalizer func(string) string

// newNormalizers reads the normalizer of tokenizer.json; nil means that there is none.
func newNormalizers(value json.RawMessage) (list []normalizer, err error) {
	err = eachComponent("normalizer", "normalizers", value, func(kind string, value json.RawMessage) error {
		n, err := newNormalizer(kind, value)
		list = append(list, n)
		return err
	})
	return list, err
}

func newNormalizer(kind string, value json.RawMessage) (normalizer, error) {
	switch kind {
	case "NFC":
		return nfc, nil
	case "Replace":
		old, content, err := readReplace("normalizer", value)
		return func(s string) string { return strings.ReplaceAll(s, old, content) }, err
	case "Prepend":
		var c struct{ Prepend string }
		err := decodeJSON("normalizer Prepend", value, &c)
		return func(s string) string {
			if s == "" {
				return s
			}
			return c.Prepend + s
		}, err
	}
	return nil, unsupported("normalizer", kind, "Sequence", "NFC", "Replace", "Prepend")
}

// readReplace reads a component Replace: a literal and its replacement.
func readReplace(part string, value json.RawMessage) (old, content string, err error) {
	var c struct {
		Pattern patternFile
		Content string
	}
	if err := decodeJSON(part+" Replace", value, &c); err != nil {
		return "", "", err
	}
	switch {
	case c.Pattern.Regex != nil:
		return "", "", unsupported(part+" Replace pattern", *c.Pattern.Regex, `{"String": ...}`)
	case c.Pattern.String == nil || *c.Pattern.String == "":
		return "", "", malformed("%s Replace: no pattern", part)
	}
	return *c.Pattern.String, c.Content, nil
}
