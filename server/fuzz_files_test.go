package server

import (
	"errors"
	"strings"
	"testing"
)

// FuzzLimits checks that parsing any list of limits returns ErrLimits or valid limits.
func FuzzLimits(f *testing.F) {
	for _, seed := range []string{"a requests=8 tokens=60000/min share=50%; * share=0.1", "# x\n\na:requests=1,,\r\n",
		"a share=1e-300", ":", "a :requests=1", ";;=", "a requests=99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ReadLimits(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrLimits) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		for name, limit := range l.byName {
			if name == "" || limit == (Limit{}) || limit.Requests < 0 || limit.Tokens < 0 ||
				!(limit.Share >= 0 && limit.Share <= 1) {
				t.Fatalf("tenant %q has %+v", name, limit)
			}
		}
	})
}

// FuzzKeys checks that parsing any file of keys returns ErrKeys, or keys that can all be found.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"k-one acme\r\n  k-two\n", "# none", "a b c", "a\na", "\x00 \xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ReadKeys(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrKeys) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) == 0 || strings.HasPrefix(words[0], "#") {
				continue
			}
			if tenant, ok := k.tenant(words[0]); !ok || len(words) == 2 && tenant != words[1] {
				t.Fatalf("key %q is of tenant %q, %v", words[0], tenant, ok)
			}
		}
	})
}
