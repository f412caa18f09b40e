package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow/internal/model/synth"
	"sparrow/plan"
)

// flagValues returns the values that a shell suggests for flags, by the flag's name. Flags with the same name have the
// same meaning in every command.
func flagValues() map[string][]string {
	kernels := []string{"auto\ta GPU that can run the model, else the CPU", "cpu"}
	for _, b := range registry().Backends() {
		kernels = append(kernels, b.Name+"\t"+b.Summary)
	}
	var shapes []string
	for _, p := range synth.Presets() {
		shapes = append(shapes, p.Name+"\t"+p.Summary)
	}
	sparse := []string{"sparse-flat", "sparse-block", "sparse-raw"}
	return map[string][]string{
		"kv": {"bf16\t1152 bytes per token and layer", "fp8\t656 bytes in blocks", "fp8-576\t576 bytes raw",
			"f32\texact, for proofs"},
		"prefill":   append([]string{"auto"}, sparse...),
		"decode":    sparse,
		"dense":     {"on", "off"},
		"draft":     {"auto\tadaptive number", "off", "1", "2", "3", "4", "5", "6", "7"},
		"kernels":   kernels,
		"config":    shapes,
		"dtype":     synth.DTypeNames(),
		"log-level": {"debug", "info", "warn", "error"},
		"catalog":   {"sparrow", "public"},
		"nextn":     {"0", "1"},
		"type":      mixNames(),
		"family":    plan.ModelNames(),
	}
}

// folderFlags lists flags whose value is a folder; mixedFlags lists flags that take a listed value or a file.
var (
	folderFlags = []string{"model"}
	mixedFlags  = []string{"config"}
)

// addCompletions adds completion of flag values to every command below c.
func addCompletions(c *cobra.Command) {
	values := flagValues()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { completeFlag(c, f.Name, values[f.Name]) })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(c)
}

func completeFlag(c *cobra.Command, name string, values []string) {
	for _, n := range folderFlags {
		if n == name {
			_ = c.MarkFlagDirname(name) // fails only for a flag that does not exist
		}
	}
	if values == nil {
		return
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, n := range mixedFlags {
		if n == name {
			directive = cobra.ShellCompDirectiveDefault
		}
	}
	// Registration fails only if the flag already has completions, which are then kept.
	_ = c.RegisterFlagCompletionFunc(name,
		func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			var fits []string
			for _, v := range values {
				if strings.HasPrefix(v, typed) {
					fits = append(fits, v)
				}
			}
			return fits, directive
		})
}
