package main

import (
	"strings"
	"testing"
)

// A command refuses every flag that it would not use.
func TestFlagsWithoutEffectAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify", oracle + "deepseek_v32-1", "--exact", "--draft", "4"}, "unknown flag: --draft"},
		{[]string{"eval", "--url", "http://127.0.0.1:1", "--kv", "fp8", "--tasks", "talk"},
			"eval: --kv cannot change the server at --url"},
		{[]string{"eval", "--url", "http://127.0.0.1:1", "--draft", "4", "--step-tokens", "8"},
			"--draft, --step-tokens cannot change"},
		{[]string{"eval", "--key", "secret", "--tasks", "talk"}, "--key has no effect without --url"},
		{[]string{"eval", "--timeout", "1s", "--tasks", "talk"}, "--timeout has no effect without --url"},
		{[]string{"bench", "serve", "--allow-remote", "--requests", "1"},
			"--allow-remote has no effect without --url"},
		{[]string{"bench", "kernels", "--device", "cuda", "--threads", "1"},
			"--threads has no effect with --kernels cuda"},
		{[]string{"bench", "kernels", "--pause", "1ms", "--only", "select"},
			"--pause has no effect with --kernels cpu"},
	} {
		status, stdout, stderr := invoke(c.args...)
		if status != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %q; want it to say %q", c.args, status, stderr, c.want)
		}
	}
}
