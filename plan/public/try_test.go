package public

import (
	"errors"
	"strings"
	"testing"

	"sparrow/plan"
)

// apply sets the flags of a suggestion in a policy. It returns false if the suggestion contains anything but such
// flags.
func apply(p *Policy, try string) bool {
	words := strings.Fields(try)
	if len(words) == 0 || len(words)%2 != 0 {
		return false
	}
	for i := 0; i < len(words); i += 2 {
		switch words[i] {
		case "--kv":
			p.KV = words[i+1]
		case "--prefill":
			p.Prefill = words[i+1]
		case "--decode":
			p.Decode = words[i+1]
		case "--topk":
			p.TopK = TopK(words[i+1])
		case "--tie-break":
			p.TieBreak = TieBreak(words[i+1])
		default:
			return false
		}
	}
	return true
}

// TestEverySuggestionWorks tries every kernel pair, KV type and architecture, and checks that every refusal suggests
// flags that are accepted.
func TestEverySuggestionWorks(t *testing.T) {
	tried, accepted := 0, 0
	names, hws := []string{""}, []string{"sm80", "sm90", "sm100", "sm120", "gfx95"}
	for _, e := range catalogue.Entries {
		names = append(names, e.Kernel.String())
	}
	for _, hw := range hws {
		for _, m := range []string{"deepseek_v32", "deepseek_v4"} {
			for _, kvName := range []string{"bf16", "fp8", ""} {
				for _, prefill := range names {
					for _, decode := range names {
						s := newSetup(t, hw, family(t, m), kv(kvName), kernelsOf(prefill, decode))
						_, _, err := Resolve(s.hw, s.model, s.policy)
						if err == nil {
							accepted++
							continue
						}
						var e *plan.Error
						if !errors.As(err, &e) {
							t.Fatalf("%v is no refusal", err)
						}
						// A suggestion with a single flag may correct only one of several mistakes, but a suggestion of
						// a full pair of kernels must work without further changes.
						if !strings.Contains(e.Try, "--decode") || !strings.Contains(e.Try, "--prefill") ||
							!apply(&s.policy, e.Try) {
							continue
						}
						tried++
						if _, _, err := Resolve(s.hw, s.model, s.policy); err != nil {
							t.Fatalf("%s %s kv %q prefill %q decode %q: %v\nsuggests %q: %v", hw, m, kvName,
								prefill, decode, e, e.Try, err)
						}
					}
				}
			}
		}
	}
	if tried < 1000 || accepted < 200 {
		t.Errorf("%d suggestions tried, %d configurations accepted: the walk is too small", tried, accepted)
	}
}

// Kernels that are named only on request are not suggested where another pair serves the model.
func TestSuggestionsComeBeforeTheReference(t *testing.T) {
	s := newSetup(t, "sm90", kv("bf16"), heads(130))
	want(t, "130 heads", s.refused(t, plan.E08).Try, "--kv bf16 --prefill fa3 --decode fa3")
}

// If deterministic mode is refused, the suggestion contains every flag that it needs.
func TestSuggestionsOfDeterministicModeAreWhole(t *testing.T) {
	for _, hw := range []string{"sm90", "sm100", "sm103", "gfx95"} {
		for _, kvName := range []string{"bf16", "fp8"} {
			s := newSetup(t, hw, kv(kvName), wish(func(p *Policy) { p.Deterministic = true }))
			e := s.refused(t, plan.E13)
			if !apply(&s.policy, e.Try) {
				t.Fatalf("%s %s suggests %q", hw, kvName, e.Try)
			}
			want(t, hw+" "+kvName+" with "+e.Try, s.resolve(t).Deterministic, true)
		}
	}
}
