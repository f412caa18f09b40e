package server

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"slices"
	"strings"

	"sparrow/internal/textfile"
)

// Keys holds the bearer keys of a server, only as hashes.
type Keys struct {
	list []key
}

type key struct {
	sum    [sha256.Size]byte
	tenant string
}

// LoadKeys reads a file of keys as ReadKeys does.
func LoadKeys(path string) (*Keys, error) {
	f, err := textfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	defer f.Close()
	k, err := ReadKeys(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// ReadKeys reads one key per line, optionally followed by spaces and the name of a tenant. Prompts of different tenants
// share no cached prefix. Empty lines and lines that start with # are skipped. It is an error if there is no key.
func ReadKeys(r io.Reader) (*Keys, error) {
	k := &Keys{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
			continue
		case len(words) > 2:
			return nil, fmt.Errorf("%w: line %d has %d words, want a key, optionally followed by a tenant's name",
				ErrKeys, n, len(words))
		}
		next := key{sum: sha256.Sum256([]byte(words[0]))}
		if len(words) == 2 {
			next.tenant = words[1]
		}
		if _, twice := k.find(next.sum); twice {
			return nil, fmt.Errorf("%w: line %d repeats the key of an earlier line; write each key once", ErrKeys, n)
		}
		k.list = append(k.list, next)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	if len(k.list) == 0 {
		return nil, fmt.Errorf("%w: the file has no key; write one key per line, or serve without a file", ErrKeys)
	}
	return k, nil
}

// tenants returns the names of tenants, each once. Without keys, all requests belong to one tenant with an empty name.
func (k *Keys) tenants() []string {
	if k == nil {
		return []string{""}
	}
	var names []string
	for i := range k.list {
		if !slices.Contains(names, k.list[i].tenant) {
			names = append(names, k.list[i].tenant)
		}
	}
	return names
}

// shares reports whether any key is in both lists.
func (k *Keys) shares(other *Keys) bool {
	return k != nil && slices.ContainsFunc(k.list, func(each key) bool {
		_, ok := other.find(each.sum)
		return ok
	})
}

// tenant returns the tenant of a key; ok is false for a key that is not in the list.
func (k *Keys) tenant(given string) (tenant string, ok bool) {
	return k.find(sha256.Sum256([]byte(given)))
}

// find compares the hash with those of all keys in constant time, so that the time does not reveal a match.
func (k *Keys) find(sum [sha256.Size]byte) (tenant string, ok bool) {
	at := -1
	for i := range k.list {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], k.list[i].sum[:]), i, at)
	}
	if at < 0 {
		return "", false
	}
	return k.list[at].tenant, true
}
