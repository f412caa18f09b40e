package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"sparrow/chat"
)

// agent is a coding agent that is tested as a client.
type agent struct {
	name    string // folder of the agent in this package
	program string // path of the program below node_modules; PLATFORM is replaced by the machine's platform
	offers  string // text that every prompt with the agent's tools contains
	tools   tools
	// setup writes the agent's configuration to its home folder, and returns arguments and environment variables.
	setup func(home, url string) (args, env []string, err error)
}

// platform returns the machine's platform as npm packages name it.
func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

var agents = []*agent{
	{
		name: "codex", program: ".bin/codex", offers: "exec_command",
		tools: tools{
			read: func(path string) chat.Call { return call("exec_command", "cmd", "cat "+path) },
			edit: func(path, old, text string) chat.Call {
				return call("exec_command", "cmd", fmt.Sprintf("apply_patch <<'EOF'\n*** Begin Patch\n"+
					"*** Update File: %s\n@@\n-echo $((%s))\n+echo $((%s))\n*** End Patch\nEOF", path, old, text))
			},
			run: func(command string) chat.Call { return call("exec_command", "cmd", command) },
		},
		setup: setupCodex,
	},
	{
		name: "claude-code", program: "@anthropic-ai/claude-code-PLATFORM/claude", offers: "file_path",
		tools: tools{
			read: func(path string) chat.Call { return call("Read", "file_path", path) },
			edit: func(path, old, text string) chat.Call {
				return call("Edit", "file_path", path, "old_string", old, "new_string", text)
			},
			run: func(command string) chat.Call { return call("Bash", "command", command, "description", "Run it") },
		},
		setup: func(_, url string) (args, env []string, err error) {
			return []string{"-p", task, "--dangerously-skip-permissions"}, []string{"ANTHROPIC_BASE_URL=" + url,
				"ANTHROPIC_AUTH_TOKEN=unused", "ANTHROPIC_MODEL=" + model, "ANTHROPIC_DEFAULT_HAIKU_MODEL=" + model,
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1"}, nil
		},
	},
	{
		name: "opencode", program: "opencode-PLATFORM/bin/opencode", offers: "filePath",
		tools: tools{
			read: func(path string) chat.Call { return call("read", "filePath", path) },
			edit: func(path, old, text string) chat.Call {
				return call("edit", "filePath", path, "oldString", old, "newString", text)
			},
			run: func(command string) chat.Call { return call("bash", "command", command) },
		},
		setup: setupOpencode,
	},
	{
		name: "qwen-code", program: ".bin/qwen", offers: "run_shell_command",
		tools: tools{
			read: func(path string) chat.Call { return call("read_file", "file_path", path) },
			edit: func(path, old, text string) chat.Call {
				return call("edit", "file_path", path, "old_string", old, "new_string", text)
			},
			run: func(command string) chat.Call { return call("run_shell_command", "command", command) },
		},
		setup: func(_, url string) (args, env []string, err error) {
			return []string{"-p", task, "--yolo", "--auth-type", "openai"}, []string{"OPENAI_API_KEY=unused",
				"OPENAI_BASE_URL=" + url + "/v1", "OPENAI_MODEL=" + model}, nil
		},
	},
}

func setupCodex(home, url string) (args, env []string, err error) {
	dir := filepath.Join(home, ".codex")
	config := fmt.Sprintf("model = %q\nmodel_provider = \"sparrow\"\nmodel_reasoning_effort = \"medium\"\n"+
		"[model_providers.sparrow]\nname = \"sparrow\"\nbase_url = %q\nwire_api = \"responses\"\n"+
		"env_key = \"SPARROW_KEY\"\n", model, url+"/v1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	return []string{"exec", "--dangerously-bypass-approvals-and-sandbox", task},
		[]string{"SPARROW_KEY=unused", "CODEX_HOME=" + dir},
		os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o644)
}

func setupOpencode(home, url string) (args, env []string, err error) {
	dir := filepath.Join(home, ".config", "opencode")
	name := "sparrow/" + model
	config, err := json.Marshal(map[string]any{
		"model": name, "small_model": name, "autoupdate": false, "share": "disabled",
		"provider": map[string]any{"sparrow": map[string]any{
			"npm": "@ai-sdk/openai-compatible", "name": "sparrow",
			"options": map[string]any{"baseURL": url + "/v1", "apiKey": "unused"},
			"models":  map[string]any{model: map[string]any{"name": model}},
		}},
	})
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	return []string{"run", task}, []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"},
		os.WriteFile(filepath.Join(dir, "opencode.json"), config, 0o644)
}
