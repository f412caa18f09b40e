package compile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// ErrNoCompiler is wrapped by the error that FindNVRTC returns if it does not find NVRTC.
var ErrNoCompiler = errors.New("compile: no NVRTC library found")

// howToGet explains how to install NVRTC.
const howToGet = `install it with "pip install nvidia-cuda-nvrtc==13.0.*" into any virtual environment and name that folder with --nvrtc, or install a CUDA toolkit (13.0 or newer)`

// libraries lists the file names of NVRTC, newest first. A file without a version is only in toolkits.
var libraries = []string{"libnvrtc.so.13", "libnvrtc.so"}

// usualFolders returns the folders that are searched if none is given: toolkits, then the Python environments around
// the working directory.
func usualFolders(working, home string) []string {
	folders := []string{"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/opt/cuda/lib64"}
	toolkits, _ := filepath.Glob("/usr/local/cuda-*/lib64") // the pattern is constant and well formed
	sort.Sort(sort.Reverse(sort.StringSlice(toolkits)))
	folders = append(folders, toolkits...)
	for _, env := range []string{".venv", "venv"} {
		folders = append(folders, filepath.Join(working, env))
	}
	if home != "" {
		folders = append(folders, filepath.Join(home, ".local"))
	}
	return append(folders, "/usr/local", "/usr")
}

// wheelPatterns lists the paths, relative to a folder, where the library of a Python wheel may be: the folder itself, a
// pip --target folder, a virtual environment, or a system prefix. Wheels for CUDA 13 have the library under cu13, older
// wheels under cuda_nvrtc.
var wheelPatterns = []string{
	".",
	"lib64",
	"nvidia/*/lib",
	"lib/python3*/site-packages/nvidia/*/lib",
	"lib/python3*/dist-packages/nvidia/*/lib",
}

// FindNVRTC returns the path of the NVRTC library. If a folder is given, it searches only there: in the folder itself,
// and in the Python packages inside it. Otherwise it searches the usual folders, and finally returns the file name
// without a folder, if the dynamic linker finds it.
func FindNVRTC(folder string, loadable func(name string) bool) (string, error) {
	var folders []string
	if folder != "" {
		folders = []string{folder}
	} else {
		working, err := os.Getwd()
		if err != nil {
			return "", fmt.Errorf("compile: %w", err)
		}
		home, err := os.UserHomeDir()
		if err != nil {
			home = "" // no home folder, so it is not searched
		}
		folders = usualFolders(working, home)
	}
	for _, f := range folders {
		if p := findIn(f); p != "" {
			return p, nil
		}
	}
	if folder == "" {
		for _, name := range libraries {
			if loadable(name) {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("%w in %s; %s", ErrNoCompiler, strings.Join(folders, ", "), howToGet)
}

// findIn returns the path of the library in one folder, or an empty string.
func findIn(folder string) string {
	for _, pattern := range wheelPatterns {
		for _, name := range libraries {
			found, _ := filepath.Glob(filepath.Join(folder, pattern, name)) // the pattern is valid
			sort.Strings(found)
			if len(found) > 0 {
				return found[len(found)-1]
			}
		}
	}
	return ""
}

// builtinsFor returns the companion libraries of an NVRTC library. NVRTC opens its companion by file name without a
// folder, which works only if it is already loaded or the linker finds it.
func builtinsFor(library string) []string {
	if !strings.ContainsRune(library, filepath.Separator) {
		return nil
	}
	// The pattern is constant, so Glob does not fail.
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(library), "libnvrtc-builtins.so.*"))
	sort.Strings(found)
	return found
}
