package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Every command refuses a flag that plans of this engine do not have, and names the flag's replacement. explain accepts
// the flag with the catalogue that has it, and prints a note.
func TestRemovedFlagsNameTheirSuccessor(t *testing.T) {
	values := map[string]string{"bool": "true", "string": "x", "int": "7", "int64": "7"}
	all := pflag.NewFlagSet("explain", pflag.ContinueOnError)
	new(explainFlags).addAll(all)
	for _, r := range removedFlags {
		f := all.Lookup(r.flag)
		if f == nil || !strings.Contains(f.Usage, "--catalog public") {
			t.Fatalf("explain has no --%s for other engines", r.flag)
		}
		flag := "--" + r.flag + "=" + values[f.Value.Type()]
		status, _, stderr := invoke("explain", "--family", "deepseek_v32", flag)
		if status != 1 || !strings.Contains(stderr, r.instead) || !strings.Contains(stderr, string(r.code)) ||
			!strings.Contains(stderr, "this works: sparrow explain") {
			t.Errorf("explain %s: status %d, %s", flag, status, stderr)
		}
		for _, c := range commands(root()) {
			if !c.Runnable() || c.DisableFlagParsing || c.Name() == "explain" || c.Flags().Lookup(r.flag) != nil {
				continue
			}
			args := append(strings.Fields(c.CommandPath())[1:], flag)
			if status, _, stderr := invoke(args...); status == 0 || !strings.Contains(stderr, r.instead) {
				t.Errorf("%s: status %d, %s", strings.Join(args, " "), status, stderr)
			}
		}
	}
}
