package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RanksName is the file that Kimi checkpoints have instead of tokenizer.json: one line per token, with its bytes in
// base64 and its rank, which is the id. It contains neither the pre-tokenizer's pattern nor special tokens.
const RanksName = "tiktoken.model"

// ranksPattern is Kimi's pre-tokenizer pattern: runs of Han characters, words with at most one character before them,
// up to three digits. The release writes the last class as an intersection; here it is a subtraction.
const ranksPattern = `[\p{Han}]+|` +
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]+` +
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]*` +
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// ranksReserved is the number of special tokens after the ranks. If tokenizer_config.json does not list one, its name
// contains its id.
const ranksReserved = 256

// FromRanks converts a ranks file to a tokenizer.json with the same encoding. configJSON is tokenizer_config.json,
// which lists special tokens, or nil. Merges are derived from tokens: after all merges of lower rank, the bytes of a
// token are two parts, which are its pair.
func FromRanks(ranks, configJSON []byte) ([]byte, error) {
	words, err := readRanks(ranks)
	if err != nil {
		return nil, err
	}
	added, err := ranksAdded(configJSON, len(words))
	if err != nil {
		return nil, err
	}
	rank := make(map[string]int, len(words))
	for i, w := range words {
		rank[w] = i
	}
	var merges [][2]string
	vocab := make(map[string]int, len(words))
	for i, w := range words {
		vocab[spelled(w)] = i
		if len(w) == 1 {
			continue
		}
		parts := mergeBelow(rank, w, i)
		if len(parts) != 2 {
			return nil, malformed("%s: the token of rank %d is not a pair of tokens of lower ranks", RanksName, i)
		}
		merges = append(merges, [2]string{spelled(parts[0]), spelled(parts[1])})
	}
	type object = map[string]any
	return json.Marshal(object{
		"added_tokens": added,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": ranksPattern}, "behavior": "Isolated", "invert": false},
			{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		}},
		"decoder": object{"type": "ByteLevel"},
		// A piece that equals a token becomes that token, without merges.
		"model": object{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges},
	})
}

// readRanks reads the tokens in the order of their ranks, which must be consecutive.
func readRanks(data []byte) ([]string, error) {
	var words []string
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		text, number, ok := bytes.Cut(line, []byte(" "))
		word, err := base64.StdEncoding.DecodeString(string(text))
		rank, bad := strconv.Atoi(string(number))
		switch {
		case !ok || err != nil || bad != nil || len(word) == 0:
			return nil, malformed("%s: line %d is not a token in base64 and its rank", RanksName, n)
		case rank != len(words):
			return nil, malformed("%s: line %d has rank %d, want %d: ranks must be consecutive", RanksName, n, rank,
				len(words))
		}
		words = append(words, string(word))
	}
	if len(words) == 0 {
		return nil, malformed("%s contains no tokens", RanksName)
	}
	return words, nil
}

// ranksAdded returns the special tokens, whose ids follow the given number of ranks.
func ranksAdded(configJSON []byte, ranks int) ([]addedToken, error) {
	var cfg struct {
		Added map[string]addedToken `json:"added_tokens_decoder"`
	}
	if configJSON != nil {
		if err := decodeJSON("tokenizer_config.json", configJSON, &cfg); err != nil {
			return nil, err
		}
	}
	list := make([]addedToken, ranksReserved)
	for i := range list {
		id := ranks + i
		list[i] = addedToken{ID: int32(id), Content: fmt.Sprintf("<|reserved_token_%d|>", id), Special: true}
	}
	for key, a := range cfg.Added {
		id, err := strconv.Atoi(key)
		if err != nil || id < ranks || id >= ranks+ranksReserved {
			return nil, malformed("tokenizer_config.json: added token %q has id %q, want %d to %d", a.Content, key,
				ranks, ranks+ranksReserved-1)
		}
		a.ID = int32(id)
		list[id-ranks] = a
	}
	return list, nil
}

// mergeBelow merges the bytes of a word with the pairs of ranks below limit: lowest rank first, of several the
// leftmost.
func mergeBelow(rank map[string]int, word string, limit int) []string {
	parts := strings.Split(word, "")
	if len(parts) != len(word) { // parts are bytes, not characters
		parts = parts[:0]
		for i := range len(word) {
			parts = append(parts, word[i:i+1])
		}
	}
	for {
		best, at := limit, -1
		for i := range len(parts) - 1 {
			if r, ok := rank[parts[i]+parts[i+1]]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return parts
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
}

// spelled returns bytes in the byte-level alphabet.
func spelled(word string) string {
	out := make([]rune, len(word))
	for i := range len(word) {
		out[i] = alphabetRune[word[i]]
	}
	return string(out)
}

// alphabetRune maps a byte to its character in the byte-level alphabet.
var alphabetRune = func() (table [256]rune) {
	for r, b := range alphabetByte {
		if b >= 0 {
			table[b] = rune(r)
		}
	}
	return table
}()
