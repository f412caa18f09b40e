package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sparrow/plan"
)

// refusal is the JSON output for a configuration that was refused, with the most similar command that works.
type refusal struct {
	*plan.Error
	Command string `json:"command,omitempty"`
}

// setting is a flag with a value that the user gave, or that is tried for a suggestion.
type setting struct{ name, value string }

// fixed lists the flags that a suggestion changes only if no other change works.
var fixed = []string{"model", "family", "catalog", "hw", "batch", "json", "deterministic"}

// given returns the flags that the user set, in the order in which they are defined.
func given(s *pflag.FlagSet) []setting {
	var out []setting
	s.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			out = append(out, setting{f.Name, f.Value.String()})
		}
	})
	return out
}

// nearest returns the most similar command that works; it tries candidates in this order: with the flags that the
// refusal names, with as few flags removed as possible, with another catalogue or hardware. It returns "" if none
// works.
func nearest(asked []setting, e *plan.Error) string {
	for _, c := range candidates(asked, e) {
		if answered(c) == nil {
			return commandLine(c)
		}
	}
	return ""
}

// followed applies the flags that a refusal names, plans again, and repeats this at most four times. For example, a
// larger --reserve may suffice for one row but be too small for the next.
func followed(asked []setting, e *plan.Error) []setting {
	for range 4 {
		named := flagsIn(e.Try)
		if len(named) == 0 {
			break
		}
		asked = with(asked, named...)
		if err := answered(asked); !errors.As(err, &e) {
			break
		}
	}
	return asked
}

// candidates returns the settings to try, the most similar to asked first.
func candidates(asked []setting, e *plan.Error) [][]setting {
	var out [][]setting
	named := flagsIn(e.Try)
	if len(named) > 0 {
		out = append(out, with(asked, named...), followed(asked, e))
	}
	if ranks, ok := strings.CutSuffix(e.Try, " ranks"); ok {
		out = append(out, with(asked, setting{"tp", ranks}),
			with(without(asked, []string{"tp"}), setting{"hw", ranks + "xh200"}))
	}
	if errors.Is(e, plan.E23) {
		out = append(out, with(asked, setting{"carry", "true"}))
	}
	var free []string
	for _, s := range asked {
		if !slices.Contains(fixed, s.name) {
			free = append(free, s.name)
		}
	}
	for most := 1; most <= min(3, len(free)); most++ {
		out = append(out, leavingOut(asked, free, most, named)...)
	}
	bare := without(asked, free)
	return append(out, with(asked, setting{"catalog", "sparrow"}), with(bare, setting{"catalog", "sparrow"}),
		with(bare, setting{"hw", "cpu"}, setting{"catalog", "sparrow"}))
}

// leavingOut returns copies of asked without n of the names, for every choice of n names. Each copy is returned twice:
// as it is, and with the flags named.
func leavingOut(asked []setting, names []string, n int, named []setting) [][]setting {
	var out [][]setting
	var choose func(rest, chosen []string)
	choose = func(rest, chosen []string) {
		if len(chosen) == n {
			c := without(asked, chosen)
			out = append(out, c)
			if len(named) > 0 {
				out = append(out, with(c, named...))
			}
			return
		}
		for i := range rest {
			choose(rest[i+1:], append(slices.Clone(chosen), rest[i]))
		}
	}
	choose(names, nil)
	return out
}

// flagsIn parses the "--flag value" pairs at the start of a suggestion; it returns nil if there are none.
func flagsIn(try string) []setting {
	var out []setting
	words := strings.Fields(try)
	for i := 0; i+1 < len(words); i += 2 {
		name, ok := strings.CutPrefix(words[i], "--")
		if !ok {
			break
		}
		out = append(out, setting{name, strings.TrimRight(words[i+1], ",;")})
	}
	return out
}

func with(asked []setting, changes ...setting) []setting {
	out := slices.Clone(asked)
	for _, c := range changes {
		if i := slices.IndexFunc(out, func(s setting) bool { return s.name == c.name }); i >= 0 {
			out[i] = c
		} else {
			out = append(out, c)
		}
	}
	return out
}

func without(asked []setting, names []string) []setting {
	return slices.DeleteFunc(slices.Clone(asked), func(s setting) bool { return slices.Contains(names, s.name) })
}

// answered plans with these flags, and estimates the time if requested. It returns the error, or nil if the command
// works.
func answered(settings []setting) error {
	var f explainFlags
	s := pflag.NewFlagSet("explain", pflag.ContinueOnError)
	f.addAll(s)
	for _, x := range settings {
		if err := s.Set(x.name, x.value); err != nil {
			return err
		}
	}
	a, err := f.answer()
	if err == nil && f.time {
		_, err = f.estimated(a)
	}
	return err
}

// commandLine writes settings as a shell command.
func commandLine(settings []setting) string {
	out := "sparrow explain"
	for _, s := range settings {
		switch {
		case s.value == "true":
			out += " --" + s.name
		case strings.ContainsAny(s.value, " \t\n'\"\\$`*?[](){}<>|&;!#~"):
			out += " --" + s.name + " '" + strings.ReplaceAll(s.value, "'", `'\''`) + "'"
		default:
			out += " --" + s.name + " " + s.value
		}
	}
	return out
}
