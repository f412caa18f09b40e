package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// checkManifests is a program that compares manifests with schemas.
//
//go:embed manifests.py
var checkManifests []byte

// definitions lists Go modules that contain the custom resources used in deploy/kubernetes, with the folders inside
// them.
var definitions = []struct{ module, folder string }{
	{"sigs.k8s.io/gateway-api-inference-extension@v1.5.0", "config/crd/bases"},
	{"sigs.k8s.io/gateway-api@v1.4.0", "config/crd/standard"},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd"},
}

// manifests validates the objects in deploy/kubernetes against the schemas of Kubernetes and of the custom resources.
func (s *stage) manifests(ctx context.Context) error {
	script := filepath.Join(s.work, "manifests.py")
	if err := os.WriteFile(script, checkManifests, 0o644); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "deploy/kubernetes/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no manifests were found: %v", err)
	}
	args := []string{script}
	for _, d := range definitions {
		dir, err := download(ctx, s.work, d.module)
		if err != nil {
			fmt.Printf("skipped: the manifests were not checked: %v\n", err)
			return nil
		}
		args = append(args, "--crd", filepath.Join(dir, d.folder))
	}
	text, err := exec.CommandContext(ctx, s.python.Path, append(args, files...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s", strings.TrimSpace(string(text)))
	}
	s.check("deploy/kubernetes follows the schemas", strings.TrimSpace(string(text)), err)
	return nil
}

// download downloads a Go module and returns its folder. work is a folder outside any module.
func download(ctx context.Context, work, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = work
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if json.Unmarshal(out, &got) != nil || got.Dir == "" {
		return "", fmt.Errorf("%s is not available: %s %v", module, got.Error, err)
	}
	return got.Dir, nil
}
