package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sparrow/builtin"
	"sparrow/internal/hub"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/textfile"
)

// hubCache returns the folder in which 'sparrow pull' and the tools of Hugging Face store models.
func hubCache() (hub.Cache, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // the folder may still be set in the environment
	}
	return hub.CacheAt(os.Getenv, home)
}

// modelFlag is the prefix of messages about --model.
const modelFlag = "--model "

// benchModelFlag is the prefix of messages about the model of 'bench model'.
const benchModelFlag = "bench model: "

// builtinModel selects the built-in model for commands that require a model.
const builtinModel = "builtin"

// modelFolder returns the folder of a model that was given as a folder, a GGUF file, or by its name on a hub; it is
// empty for the built-in model. It returns an error if there is no such model; flag is the prefix of the error.
func modelFolder(flag, given string) (string, error) {
	if given == "" {
		return "", nil
	}
	const wanted = "a model is a GGUF file, or a folder with config.json, *.safetensors and tokenizer.json"
	info, err := os.Stat(given)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (given == builtinModel || given == builtin.Name):
		return "", nil
	case errors.Is(err, fs.ErrNotExist):
		return pulledModel(flag, given, wanted)
	case err != nil:
		return "", fmt.Errorf("%s%w", flag, err)
	case info.IsDir():
		return given, onlyGGUF(flag, given)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s%s is a %s; %s", flag, given, textfile.Kind(info.Mode()), wanted)
	case family.IsGGUF(given):
		return given, nil
	}
	if ext := filepath.Ext(given); ext == ".safetensors" || ext == ".json" {
		again := filepath.Dir(given)
		if flag == modelFlag {
			again = flag + again
		}
		return "", fmt.Errorf("%s%s: this is a file; give the folder it is in: %s", flag, given, again)
	}
	return "", fmt.Errorf("%s%s: this is a file; %s", flag, given, wanted)
}

// onlyGGUF returns an error if a folder contains GGUF files but no checkpoint. The error suggests the path of a file.
func onlyGGUF(flag, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(files) == 0 {
		return nil // the caller reports the missing file
	}
	again := files[0]
	if flag == modelFlag {
		again = flag + again
	}
	if len(files) == 1 {
		return fmt.Errorf("%s%s: the folder has no config.json but contains %s; give the file: %s", flag, dir,
			filepath.Base(files[0]), again)
	}
	return fmt.Errorf("%s%s: the folder has no config.json but contains %d GGUF files: %s; give one of them, such "+
		"as: %s", flag, dir, len(files), someNames(files), again)
}

// someNames returns the names of files, without their folder, shortened to one line.
func someNames(files []string) string {
	const most = 6
	var names []string
	for _, f := range files[:min(most, len(files))] {
		names = append(names, filepath.Base(f))
	}
	if n := len(files) - most; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}

// pulledModel returns the folder of a pulled model.
func pulledModel(flag, given, wanted string) (string, error) {
	name, err := hub.ParseName(given)
	if err != nil {
		return "", fmt.Errorf("%s%s: there is no such folder or file; %s, or the name of a pulled model such as "+
			"deepseek-ai/DeepSeek-V3.2%s", flag, given, wanted, cmp.Or(shapeAsModel(flag, given), withoutModel(flag)))
	}
	cache, err := hubCache()
	if err != nil {
		return "", fmt.Errorf("%s%s: there is no such folder, and it is not the name of a pulled model: %w", flag,
			given, err)
	}
	dir, err := cache.Find(name)
	home, _ := os.UserHomeDir()
	if other := hub.Elsewhere(os.Getenv, home, name); err != nil && len(other) > 0 {
		return "", fmt.Errorf("%s%w; %s has %s as %s; give that file", flag, err, other[0].Engine, other[0].Quant,
			other[0].Path)
	}
	switch {
	case errors.Is(err, hub.ErrNotCached) && family.IsGGUF(given):
		return "", fmt.Errorf("%s%s: there is no such file; %s%s", flag, given, wanted, withoutModel(flag))
	case errors.Is(err, hub.ErrNotCached):
		return "", fmt.Errorf("%s%s: there is no such folder, and %s has no model of this name; 'sparrow pull %s' "+
			"downloads it; %s%s", flag, given, cache.Root, given, wanted, withoutModel(flag))
	case errors.Is(err, hub.ErrQuant):
		return "", fmt.Errorf("%s%w; 'sparrow pull %s' lists and downloads others", flag, err, name.Repo)
	case errors.Is(err, hub.ErrIncomplete):
		return "", fmt.Errorf("%s%w; 'sparrow pull %s' downloads the rest", flag, err, given)
	case err != nil:
		return "", fmt.Errorf("%s%w", flag, err)
	}
	return dir, nil
}

// shapeAsModel returns the advice for a shape that was given as a model: pull the weights of its release, or generate
// random ones.
func shapeAsModel(flag, given string) string {
	if p := releasedPreset(given); p != nil && flag != benchModelFlag {
		again := p.Release
		if flag == modelFlag {
			again = flag + again
		}
		return fmt.Sprintf("; 'sparrow pull %s' downloads the released model, which is then given as %s", p.Release,
			again)
	}
	given = strings.ToLower(given)
	if !slices.Contains(synth.PresetNames(), given) {
		return ""
	}
	hint := fmt.Sprintf("; %s is a shape without weights: 'sparrow synth %s --config %s' writes random ones", given,
		given, given)
	if flag == benchModelFlag {
		hint += ", --dummy generates them in memory"
	}
	return hint
}

// releasedPreset returns the preset of a released model by its name without the owner, ignoring case, or nil.
func releasedPreset(name string) *synth.Preset {
	for _, p := range synth.Presets() {
		if p.Release != "" && strings.EqualFold(p.Name, name) {
			return &p
		}
	}
	return nil
}

// withoutModel returns the advice to omit the flag and use the built-in model, if this is possible.
func withoutModel(flag string) string {
	if flag != modelFlag {
		return ""
	}
	return "; omit --model to run the built-in small model"
}
