package openai

import (
	"sparrow/internal/wire"
	"strconv"
)

// The append functions write JSON without reflection: a stream encodes one token at a time, and encoding/json needs
// more than a dozen allocations per token.

func appendLogprob(dst []byte, l Logprob) []byte {
	return strconv.AppendFloat(dst, l.finite(), 'g', -1, 64)
}

// appendBytes writes token bytes as numbers.
func appendBytes(dst []byte, b TokenBytes) []byte {
	if b == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i, x := range b {
		dst = strconv.AppendUint(comma(dst, i), uint64(x), 10)
	}
	return append(dst, ']')
}

// appendToken writes the members token, logprob and bytes, which chosen tokens and alternatives share, without the
// closing brace.
func appendToken(dst []byte, token string, l Logprob, b TokenBytes) []byte {
	dst = append(dst, `{"token":`...)
	dst = wire.AppendString(dst, token)
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, l)
	dst = append(dst, `,"bytes":`...)
	return appendBytes(dst, b)
}

func appendChatLogprobs(dst []byte, l *ChatLogprobs) []byte {
	if l == nil {
		return append(dst, "null"...)
	}
	dst = appendTokens(append(dst, `{"content":`...), l.Content)
	return append(dst, `,"refusal":null}`...)
}

func appendTokens(dst []byte, list []TokenLogprob) []byte {
	dst = append(dst, '[')
	for i := range list {
		t := &list[i]
		dst = appendToken(comma(dst, i), t.Token, t.Logprob, t.Bytes)
		dst = append(dst, `,"top_logprobs":[`...)
		for j := range t.TopLogprobs {
			alt := &t.TopLogprobs[j]
			dst = append(appendToken(comma(dst, j), alt.Token, alt.Logprob, alt.Bytes), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, ']')
}

func appendRanked(dst []byte, ranked RankedLogprobs) []byte {
	if ranked == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	written := 0
	for i, r := range ranked {
		if repeats(ranked[:i], r.Token) {
			continue
		}
		dst = wire.AppendString(comma(dst, written), r.Token)
		dst = appendLogprob(append(dst, ':'), r.Logprob)
		written++
	}
	return append(dst, '}')
}

func repeats(earlier RankedLogprobs, token string) bool {
	for i := range earlier {
		if earlier[i].Token == token {
			return true
		}
	}
	return false
}

func appendCompletionLogprobs(dst []byte, l *CompletionLogprobs) []byte {
	if l == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"tokens":[`...)
	for i, t := range l.Tokens {
		dst = wire.AppendString(comma(dst, i), t)
	}
	dst = append(dst, `],"token_logprobs":[`...)
	for i, p := range l.TokenLogprobs {
		if dst = comma(dst, i); p == nil {
			dst = append(dst, "null"...)
		} else {
			dst = appendLogprob(dst, *p)
		}
	}
	dst = append(dst, `],"top_logprobs":`...)
	if l.TopLogprobs == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '[')
		for i, r := range l.TopLogprobs {
			dst = appendRanked(comma(dst, i), r)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"text_offset":[`...)
	for i, n := range l.TextOffset {
		dst = strconv.AppendInt(comma(dst, i), int64(n), 10)
	}
	return append(dst, "]}"...)
}

// comma appends a comma before every element except the first (i = 0).
func comma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}
