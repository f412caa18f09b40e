package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Hand-written scanners for the patterns of the supported model families. They find the same matches as the pattern
// engine in linear time, about ten times faster. A scanner is used if the pattern's text equals a known pattern
// (knownPatterns). Tests compare them with the engine.
const (
	patternDigits   = `\p{N}`
	patternDigits3  = `\p{N}{1,3}`
	patternHanKana  = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGLM     = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])` + patternCl100kTail
	patternGLMFold = `(?i:'s|'t|'re|'ve|'m|'ll|'d)` + patternCl100kTail
	patternGPT2    = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	patternCl100kTail = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// knownPatterns maps patterns to scanners that split with the behaviour Isolated.
var knownPatterns = map[string]stage{
	patternDigits:   ruleStage{numberRule},
	patternDigits3:  ruleStage{digits3Rule},
	patternHanKana:  ruleStage{hanKanaRule},
	patternDeepSeek: ruleStage{deepSeekRule},
	patternGLM:      ruleStage{glmRule},
	patternGLMFold:  ruleStage{glmFoldRule},
	patternGPT2:     ruleStage{gpt2Rule},
}

// rule returns the end of the match that begins at s[i], or i if there is none.
type rule func(t *classTable, s string, i int) int

// ruleStage splits at the matches of a rule. Matches and the text between them are pieces.
type ruleStage struct{ match rule }

func (st ruleStage) cut(_ *scratch, s string, dst []span) ([]span, error) {
	t := classes()
	gap := 0
	for i := 0; i < len(s); {
		end := st.match(t, s, i)
		if end == i {
			_, size := t.at(s, i)
			i += size
			continue
		}
		dst = appendSpan(dst, gap, i)
		dst = appendSpan(dst, i, end)
		i, gap = end, end
	}
	return appendSpan(dst, gap, len(s)), nil
}

// numberRule implements \p{N}, digits3Rule \p{N}{1,3}, numbersRule \p{N}+.
func numberRule(t *classTable, s string, i int) int  { return numbers(t, s, i, 1) }
func digits3Rule(t *classTable, s string, i int) int { return numbers(t, s, i, 3) }
func numbersRule(t *classTable, s string, i int) int { return t.run(s, i, number) }

// numbers matches at most limit numbers at s[i].
func numbers(t *classTable, s string, i, limit int) int {
	for n := 0; n < limit && i < len(s); n++ {
		c, size := t.at(s, i)
		if c&number == 0 {
			break
		}
		i += size
	}
	return i
}

// hanKanaRule implements patternHanKana: runs of U+4E00-9FA5 and U+3040-30FF. Such characters begin with the bytes E3
// to E9.
func hanKanaRule(_ *classTable, s string, i int) int {
	for i < len(s) && s[i] >= 0xE3 && s[i] <= 0xE9 {
		r, size := utf8.DecodeRuneInString(s[i:])
		if (r < 0x4E00 || r > 0x9FA5) && (r < 0x3040 || r > 0x30FF) {
			break
		}
		i += size
	}
	return i
}

// deepSeekRule implements patternDeepSeek.
func deepSeekRule(t *classTable, s string, i int) int {
	c, size := t.at(s, i)
	if s[i] < utf8.RuneSelf && c&(punct|symbol) != 0 {
		if end := asciiLetters(s, i+1); end > i+1 {
			return end
		}
	}
	if c&(letter|punct|symbol|newline) == 0 && i+size < len(s) {
		if next, _ := t.at(s, i+size); next&(letter|combining) != 0 {
			return t.run(s, i+size, letter|combining)
		}
	}
	if c&(letter|combining) != 0 {
		return t.run(s, i+size, letter|combining)
	}
	if j := afterBlank(s, i); j < len(s) {
		if c, size := t.at(s, j); c&(punct|symbol) != 0 {
			return t.run(s, t.run(s, j+size, punct|symbol), newline)
		}
	}
	if c&space != 0 {
		return spaces(t, s, i, true)
	}
	return i
}

// glmRule implements patternGLM, glmFoldRule patternGLMFold. They differ in case folding: in glmFoldRule the long s
// (U+017F) equals s.
func glmRule(t *classTable, s string, i int) int {
	if end := contraction(s, i, 0x20); end > i {
		return end
	}
	return cl100kRule(t, s, i)
}

func glmFoldRule(t *classTable, s string, i int) int {
	if end := contraction(s, i, 0x20); end > i {
		return end
	}
	if long := "'ſ"; strings.HasPrefix(s[i:], long) {
		return i + len(long)
	}
	return cl100kRule(t, s, i)
}

// cl100kRule implements patternCl100kTail.
func cl100kRule(t *classTable, s string, i int) int {
	c, size := t.at(s, i)
	if c&letter != 0 {
		return t.run(s, i+size, letter)
	}
	if c&(number|newline) == 0 && i+size < len(s) {
		if next, _ := t.at(s, i+size); next&letter != 0 {
			return t.run(s, i+size, letter)
		}
	}
	if c&number != 0 {
		return numbers(t, s, i, 3)
	}
	if j := afterBlank(s, i); j < len(s) {
		if end := t.runNot(s, j, space|letter|number); end > j {
			return t.run(s, end, newline)
		}
	}
	return spaces(t, s, i, true)
}

// gpt2Rule implements patternGPT2.
func gpt2Rule(t *classTable, s string, i int) int {
	if end := contraction(s, i, 0); end > i {
		return end
	}
	if j := afterBlank(s, i); j < len(s) {
		switch c, size := t.at(s, j); {
		case c&letter != 0:
			return t.run(s, j+size, letter)
		case c&number != 0:
			return t.run(s, j+size, number)
		case c&space == 0:
			return t.runNot(s, j+size, space|letter|number)
		}
	}
	return spaces(t, s, i, false)
}

// contraction matches 's 't 're 've 'm 'll 'd at s[i]; fold is 0x20 to ignore ASCII case, otherwise 0.
func contraction(s string, i int, fold byte) int {
	if s[i] != '\'' || i+1 == len(s) {
		return i
	}
	switch a := s[i+1] | fold; a {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v', 'l':
		if i+2 == len(s) {
			return i
		}
		if b := s[i+2] | fold; a == 'l' && b == 'l' || a != 'l' && b == 'e' {
			return i + 3
		}
	}
	return i
}

// spaces matches white space at s[i]: `\s*[\r\n]+|\s+(?!\S)|\s+`, the first alternative only with lines. The match ends
// after the last line break of the run, if there is one. Otherwise it is the run without its last character, which
// belongs to the next word, or the whole run at the end of the text.
func spaces(t *classTable, s string, i int, lines bool) int {
	last, afterLine, end := i, i, i
	for end < len(s) {
		c, size := t.at(s, end)
		if c&space == 0 {
			break
		}
		last = end
		end += size
		if c&newline != 0 {
			afterLine = end
		}
	}
	if lines && afterLine > i {
		return afterLine
	}
	if end < len(s) && last > i {
		return last
	}
	return end
}

// afterBlank skips at most one space.
func afterBlank(s string, i int) int {
	if s[i] == ' ' {
		return i + 1
	}
	return i
}

func asciiLetters(s string, i int) int {
	for i < len(s) && s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z' {
		i++
	}
	return i
}
