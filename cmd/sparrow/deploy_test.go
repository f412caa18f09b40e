package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkInvocation fails unless the words, a command line without the program's name, begin with an existing command and
// use only its flags.
func checkInvocation(t *testing.T, where string, words []string) {
	t.Helper()
	c, rest, err := root().Find(words)
	if err != nil || c == c.Root() {
		t.Errorf("%s: %q runs no command: %v", where, words, err)
		return
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%s: %q: %v", where, words, err)
	}
}

// instruction is an instruction of a Dockerfile, with continuation lines joined.
type instruction struct{ name, args string }

func dockerfile(t *testing.T, path string) (list []instruction, comments []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
		if c, ok := strings.CutPrefix(line, "#"); ok {
			comments = append(comments, strings.TrimSpace(c))
			continue
		}
		if name, args, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" {
			list = append(list, instruction{name, strings.TrimSpace(args)})
		}
	}
	return list, comments
}

// Images run as an unprivileged user, start this program directly and not through a shell, and refer to stages, files
// and flags that exist.
func TestDockerfiles(t *testing.T) {
	known := []string{"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK",
		"ENTRYPOINT", "CMD"}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	release := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(mod))[1]
	for name, base := range map[string]string{"Dockerfile": "scratch", "Dockerfile.cuda": "debian:bookworm-slim"} {
		list, comments := dockerfile(t, filepath.Join("../../deploy", name))
		stages := map[string]bool{}
		last := map[string]string{} // the last instruction of each name in the final stage
		for i, in := range list {
			switch {
			case !slices.Contains(known, in.name):
				t.Errorf("%s: unknown instruction %s", name, in.name)
			case i == 0 && in.name != "FROM":
				t.Errorf("%s begins with %s", name, in.name)
			case in.name == "FROM":
				words := strings.Fields(in.args)
				if n := len(words); n > 2 && words[n-2] == "AS" {
					stages[words[n-1]] = true
					if words[n-3] != "golang:"+release {
						t.Errorf("%s builds with %s, and go.mod wants %s", name, words[n-3], release)
					}
				}
				clear(last)
			case in.name == "COPY":
				checkCopy(t, name, in.args, stages)
			}
			last[in.name] = in.args
		}
		if last["FROM"] != base || last["USER"] != "65532:65532" || last["RUN"] != "" {
			t.Errorf("%s: the image is made from %q, runs as %q, and RUN is %q", name, last["FROM"], last["USER"],
				last["RUN"])
		}
		const program = "/usr/local/bin/sparrow"
		_, health, _ := strings.Cut(last["HEALTHCHECK"], "CMD ")
		if got := execForm(t, name, last["ENTRYPOINT"]); !slices.Equal(got, []string{program}) {
			t.Errorf("%s: entry point %q", name, got)
		}
		if got := execForm(t, name, health); len(got) < 2 || got[0] != program {
			t.Errorf("%s: health check %q", name, got)
		} else {
			checkInvocation(t, name, got[1:])
		}
		checkInvocation(t, name, execForm(t, name, last["CMD"]))
		checkDockerRun(t, name, strings.Join(comments, " "))
	}
}

// checkCopy checks that the files or the stage that a COPY instruction names exist.
func checkCopy(t *testing.T, name, args string, stages map[string]bool) {
	t.Helper()
	words := strings.Fields(args)
	for _, w := range words {
		if from, ok := strings.CutPrefix(w, "--from="); ok {
			if !stages[from] {
				t.Errorf("%s copies from stage %q", name, from)
			}
			return
		}
	}
	for _, w := range words[:len(words)-1] {
		if _, err := os.Stat(filepath.Join("../..", w)); err != nil {
			t.Errorf("%s copies %s: %v", name, w, err)
		}
	}
}

// execForm returns the words of an instruction that is written as a JSON list, ["program", "argument"].
func execForm(t *testing.T, name, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Errorf("%s: %q is no list of arguments: %v", name, text, err)
	}
	return words
}

// checkDockerRun checks the "docker run" commands in the comments of a Dockerfile.
func checkDockerRun(t *testing.T, name, comments string) {
	t.Helper()
	found := 0
	for _, line := range strings.Split(strings.ReplaceAll(comments, `\`, ""), "docker run ")[1:] {
		words := strings.Fields(line)
		at := slices.IndexFunc(words, func(w string) bool { return w == "sparrow" || w == "sparrow-cuda" })
		if at < 0 {
			t.Errorf("%s: no image in %q", name, line)
			continue
		}
		rest := words[at+1:]
		if end := slices.Index(rest, "docker"); end >= 0 {
			rest = rest[:end]
		}
		if len(rest) > 0 {
			found++
			checkInvocation(t, name, rest)
		}
	}
	if found == 0 {
		t.Errorf("%s shows no command", name)
	}
}

// systemd accepts the unit file, and the unit starts a command that exists.
func TestSystemdUnit(t *testing.T) {
	text, err := os.ReadFile("../../deploy/sparrow.service")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			set[k] = v
		}
	}
	words := strings.Fields(set["ExecStart"])
	if len(words) != 3 || words[0] != "/usr/local/bin/sparrow" || words[2] != "$SPARROW_FLAGS" {
		t.Fatalf("ExecStart %q", words)
	}
	flags := regexp.MustCompile(`(?m)^#\s+SPARROW_FLAGS=(.*)$`).FindStringSubmatch(string(text))
	checkInvocation(t, "sparrow.service", append([]string{words[1]}, strings.Fields(flags[1])...))
	for name, want := range map[string]string{"DynamicUser": "yes", "ProtectSystem": "strict", "NoNewPrivileges": "yes",
		"CapabilityBoundingSet": "", "ProtectHome": "yes", "PrivateTmp": "yes"} {
		if got, ok := set[name]; !ok || got != want {
			t.Errorf("%s=%s, want %s", name, got, want)
		}
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	unit := filepath.Join(t.TempDir(), "sparrow.service")
	here, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unit, []byte(strings.Replace(string(text), words[0], here, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}
