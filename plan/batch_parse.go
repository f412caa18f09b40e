package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// BatchSyntax is the notation ParseBatch reads, for help texts.
const BatchSyntax = `extend:LEN[+PREFIX],...  decode:LEN,...  verify:N:LEN,...  draft:N:LEN,...  idle
mixed:extend:LEN+PREFIX,.../decode:LEN,.../verify:N:LEN,...
COUNTxLEN repeats a request; LEN of extend counts new tokens, of decode and draft all tokens, of verify those before the drafts
LEN 0 of decode and draft is a row that only pads the batch`

// maxParsedRequests is the maximum number of requests of a parsed batch.
const maxParsedRequests = 1 << 16

// ParseBatch reads the notation of BatchSyntax.
func ParseBatch(text string) (Batch, error) {
	text = strings.TrimSpace(text)
	word, rest, _ := strings.Cut(text, ":")
	mode, ok := modes.find(word)
	if !ok || mode == ModeUnset {
		e := &Error{Code: E20, Asked: fmt.Sprintf("batch %q", text),
			Supported: strings.ReplaceAll(BatchSyntax, "\n", "; ")}
		count, _, several := strings.Cut(text, "x")
		if _, err := strconv.Atoi(count); err == nil && several {
			e.Try = "decode:" + text
		} else if err == nil {
			e.Try = fmt.Sprintf("decode:%sxLEN, %s sequences of LEN tokens", count, count)
		}
		return Batch{}, e
	}
	b := Batch{Mode: mode}
	switch mode {
	case ModeIdle:
		if rest != "" {
			return Batch{}, batchError(text, "an idle batch has no requests; write idle alone")
		}
		return b, nil
	case ModeMixed:
		for part := range strings.SplitSeq(rest, "/") {
			if err := b.parsePart(text, part); err != nil {
				return Batch{}, err
			}
		}
		return b, nil
	case ModeExtend, ModeDecode, ModeVerify, ModeDraft, ModeSplitPrefill, ModeDLLMExtend, ModeUnset:
	}
	if err := b.parseList(text, mode, rest); err != nil {
		return Batch{}, err
	}
	return b, nil
}

func batchError(text, why string) error {
	return &Error{Code: E26, Asked: fmt.Sprintf("batch %q: %s", text, why),
		Supported: strings.ReplaceAll(BatchSyntax, "\n", "; ")}
}

// parsePart reads one group of a mixed batch; a group without a kind has the kind extend.
func (b *Batch) parsePart(text, part string) error {
	word, rest, named := strings.Cut(part, ":")
	if !named {
		return b.parseList(text, ModeExtend, part)
	}
	kind, ok := modes.find(word)
	if !ok || kind != ModeExtend && !kind.DecodeLike() {
		return batchError(text, fmt.Sprintf("%q is not a kind of request; see explain --help", word))
	}
	return b.parseList(text, kind, rest)
}

// parseList reads the requests of one kind, with the leading N of verify and draft.
func (b *Batch) parseList(text string, kind Mode, list string) error {
	n := 0
	if kind == ModeVerify || kind == ModeDraft {
		width, rest, ok := strings.Cut(list, ":")
		if !ok {
			return batchError(text, fmt.Sprintf("%s needs the number of rows: %s:N:LEN", kind, kind))
		}
		var err error
		if n, err = parseLength(text, width); err != nil {
			return err
		}
		if n < 1 {
			return batchError(text, fmt.Sprintf("%s has %d rows", kind, n))
		}
		list = rest
	}
	for item := range strings.SplitSeq(list, ",") {
		count := 1
		if times, rest, ok := strings.Cut(item, "x"); ok {
			var err error
			if count, err = parseLength(text, times); err != nil {
				return err
			}
			item = rest
		}
		r, err := parseRequest(text, kind, n, item)
		if err != nil {
			return err
		}
		if count < 1 {
			return batchError(text, fmt.Sprintf("it repeats a request %d times; want 1 or more", count))
		}
		if n := len(b.Requests) + count; n > maxParsedRequests {
			return batchError(text, fmt.Sprintf("it has %d requests or more; want at most %d", n, maxParsedRequests))
		}
		for range count {
			b.Requests = append(b.Requests, r)
		}
	}
	return nil
}

func parseRequest(text string, kind Mode, n int, item string) (Request, error) {
	lengthText, prefixText, hasPrefix := strings.Cut(item, "+")
	length, err := parseLength(text, lengthText)
	if err != nil {
		return Request{}, err
	}
	if kind.DecodeLike() {
		if hasPrefix {
			return Request{}, batchError(text, fmt.Sprintf("%s cannot have a prefix; only extend can", kind))
		}
		return Request{Kind: kind, Seq: length, N: n}, nil
	}
	prefix := 0
	if hasPrefix {
		if prefix, err = parseLength(text, prefixText); err != nil {
			return Request{}, err
		}
	}
	return ExtendRequest(length, prefix), nil
}

func parseLength(text, word string) (int, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 32)
	if err != nil || n < 0 {
		return 0, batchError(text, fmt.Sprintf("%q is not a length; want a whole number of tokens", word))
	}
	return int(n), nil
}
