package plan

import (
	"errors"
	"strings"
	"testing"
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
		default:
			return false
		}
	}
	return true
}

// A pair gets a layout that the prefill kernel reads in place, before one that it first gathers or rewrites and that is
// otherwise preferred; the layout that the user named comes before both.
func TestPairsGetLayoutsThatAreReadInPlace(t *testing.T) {
	const gathers, rewrites, reads, other = Kernel(1), Kernel(2), Kernel(3), Kernel(4)
	c := &Chooser{KV: FP8E4M3, Model: &Model{}, Catalogue: &Catalogue{Entries: []Entry{
		{Kernel: gathers, Reads: SetOf(FP8Row576), Gathers: SetOf(FP8Row656)},
		{Kernel: rewrites, Reads: SetOf(FP8Row656), Rewrites: SetOf(FP8Row576)},
		{Kernel: reads, Reads: SetOf(FP8Row576, FP8Row656)},
		{Kernel: other, Reads: SetOf(FP8Row576)},
	}}}
	for _, x := range []struct {
		pair       Pair
		wish, want Layout
	}{
		{Pair{gathers, reads}, LayoutNone, FP8Row576},
		{Pair{rewrites, reads}, LayoutNone, FP8Row656},
		{Pair{reads, reads}, LayoutNone, FP8Row656},
		{Pair{rewrites, other}, LayoutNone, FP8Row576},
		{Pair{other, rewrites}, LayoutNone, LayoutNone},
		{Pair{gathers, reads}, FP8Row656, FP8Row656},
		{Pair{other, reads}, FP8Row656, LayoutNone},
	} {
		if c.Wish = x.wish; c.usable(x.pair) != x.want {
			t.Errorf("%+v, asked for %v: %v, want %v", x.pair, x.wish, c.usable(x.pair), x.want)
		}
	}
}

// TestEverySuggestionWorks tries every kernel pair, KV type and architecture, and checks that every refusal suggests
// flags that are accepted.
func TestEverySuggestionWorks(t *testing.T) {
	tried, accepted := 0, 0
	names, hws := []string{""}, []string{"cpu", "sm90"}
	for _, e := range sparrowCatalogue.Entries {
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
						var e *Error
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
	if tried < 500 || accepted < 70 {
		t.Errorf("%d suggestions tried, %d configurations accepted: the walk is too small", tried, accepted)
	}
}

// Every released model runs on a CPU; if a GPU refuses one, the refusal names other hardware that accepts the model.
func TestSuggestedHardwareWorks(t *testing.T) {
	for _, name := range UsualModelNames() {
		for _, arch := range []string{"cpu", "sm90", "gfx95"} {
			s := newSetup(t, arch, family(t, name))
			_, _, err := Resolve(s.hw, s.model, s.policy)
			var e *Error
			if err == nil || !errors.As(err, &e) || !errors.Is(err, E01) {
				if err != nil || arch == "gfx95" {
					t.Errorf("%s on %s: %v", name, arch, err)
				}
				continue
			}
			flags, _, _ := strings.Cut(e.Try, ",")
			if flags == "" || strings.Contains(e.Try, "--hw "+arch+" ") || strings.HasSuffix(e.Try, "--hw "+arch) {
				t.Errorf("%s on %s: %q is suggested", name, arch, e.Try)
			}
			for _, flag := range strings.Split(flags, " or ") {
				s := newSetup(t, strings.TrimPrefix(flag, "--hw "), family(t, name))
				if _, _, err := Resolve(s.hw, s.model, s.policy); err != nil {
					t.Errorf("%s on %s suggests %s, which says %v", name, arch, flag, err)
				}
			}
		}
	}
}

// If a kernel cannot read a model's rows, the refusal names the layout of the rows.
func TestARefusalNamesTheLayout(t *testing.T) {
	s := newSetup(t, "cpu", family(t, "v41"))
	against := sparrowCatalogue.Entry(V4Flat).against(&Demand{Hardware: &s.hw, Model: &s.model, KV: FP8E4M3,
		Phase: PhasePrefill})
	if text := joinObjections(against); text != "it cannot read rows of the layout v41-288 in prefill" {
		t.Error(text)
	}
	s = newSetup(t, "sm90", kv("fp8-576")) // FP8 rows have two layouts
	against = sparrowCatalogue.Entry(SparseFlat).against(&Demand{Hardware: &s.hw, Model: &s.model, KV: FP8E4M3,
		Phase: PhaseDecode})
	if text := joinObjections(against); text != "it cannot read fp8_e4m3 rows in decode" {
		t.Error(text)
	}
}
