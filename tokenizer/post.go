package tokenizer

import (
	"encoding/json"
	"slices"
)

// frame holds the tokens that AddSpecial adds before and after a text.
type frame struct {
	before, after []int32
}

// newFrame reads the post-processor of tokenizer.json; nil means that there is none.
func newFrame(value json.RawMessage) (f frame, err error) {
	err = eachComponent("post_processor", "processors", value, func(kind string, value json.RawMessage) error {
		switch kind {
		case "ByteLevel": // changes only offsets, which this package does not return
			return nil
		case "TemplateProcessing":
			return f.addTemplate(value)
		}
		return unsupported("post_processor", kind, "Sequence", "TemplateProcessing", "ByteLevel")
	})
	return f, err
}

// templateFile is a TemplateProcessing, of which only the template for a single text is used.
type templateFile struct {
	Single []struct {
		SpecialToken *struct{ ID string }
		Sequence     *struct{ ID string }
	}
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
}

func (f *frame) addTemplate(value json.RawMessage) error {
	var c templateFile
	if err := decodeJSON("post_processor TemplateProcessing", value, &c); err != nil {
		return err
	}
	var before, after []int32
	side := &before
	for _, item := range c.Single {
		switch {
		case item.Sequence != nil:
			if side == &after {
				return malformed("post_processor TemplateProcessing: the text appears twice")
			}
			side = &after
		case item.SpecialToken != nil:
			tok, ok := c.SpecialTokens[item.SpecialToken.ID]
			if !ok {
				return malformed("post_processor TemplateProcessing: token %q has no ids", item.SpecialToken.ID)
			}
			*side = append(*side, tok.IDs...)
		default:
			return malformed("post_processor TemplateProcessing: an item is neither a token nor the text")
		}
	}
	if side != &after {
		return malformed("post_processor TemplateProcessing: the text does not appear")
	}
	f.before = slices.Concat(before, f.before)
	f.after = slices.Concat(f.after, after)
	return nil
}

// check returns an error if an id is not a token.
func (f *frame) check(v *vocab) error {
	for _, id := range slices.Concat(f.before, f.after) {
		if v.str(id) == "" {
			return malformed("post_processor adds token %d, which the vocabulary does not have", id)
		}
	}
	return nil
}
