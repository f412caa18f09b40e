package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sparrow/internal/textfile"
)

// Release holds the small files of a checkpoint. They determine whether the checkpoint is supported, before any weight
// is read or downloaded.
type Release struct {
	File     string   // the name of config.json in messages
	Config   []byte   // text of config.json
	ModelOpt []byte   // text of hf_quant_config.json, in which modelopt names the format; nil without this file
	Older    []byte   // text of quantize_config.json, in which older GPTQ releases name the format; nil without it
	Tensors  []string // names of tensors in the index; nil if they are not known
}

// QuantFile is the file next to config.json in which modelopt names the format of the weights.
const QuantFile = "hf_quant_config.json"

// OlderFile is the file next to config.json in which older GPTQ releases name the format of the weights.
const OlderFile = "quantize_config.json"

// ReadRelease reads the small files of a checkpoint folder, without the names of its tensors.
func ReadRelease(dir string) (Release, error) {
	path := filepath.Join(dir, "config.json")
	r := Release{File: path}
	var err error
	r.Config, err = textfile.Read(path, textfile.Config)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return r, fmt.Errorf("config: %w; a checkpoint folder holds config.json and *.safetensors", err)
	}
	for name, to := range map[string]*[]byte{QuantFile: &r.ModelOpt, OlderFile: &r.Older} {
		if *to, err = textfile.Optional(filepath.Join(dir, name), textfile.Config); err != nil {
			return r, fmt.Errorf("config: %w", err)
		}
	}
	return r, nil
}

// Read returns the description of the checkpoint in a folder, from its small files.
func Read(dir string) (Description, error) {
	r, err := ReadRelease(dir)
	if err != nil {
		return nil, err
	}
	return r.Describe()
}

// Describe returns the description of a model from the text of its config.json; file is its name in messages.
func Describe(file string, data []byte) (Description, error) {
	return Release{File: file, Config: data}.Describe()
}

// Describe returns the description of a checkpoint with its losses ([Config.Losses]), or an error with the found
// value, the supported values and a suggestion. All commands that read a checkpoint use it.
func (r Release) Describe() (Description, error) {
	fields, family, err := r.open()
	if err != nil {
		return nil, err
	}
	b := builder{fields: fields, family: family, mistyped: map[string]bool{}}
	format, err := r.format(fields)
	if err != nil {
		return nil, fmt.Errorf("config: %s: %w; %s (%s)", r.File, err, nearestRelease(family, fields), family)
	}
	var d Description
	switch family {
	case DeepseekV4:
		d = b.describeV4()
	case GLM5Next:
		d = b.describeNext()
	case DeepseekV41:
		d = b.describeV41()
	default:
		d = b.describeDSA()
	}
	b.unknownFields(d)
	b.tensors(d, r.Tensors)
	if len(b.problems) > 0 {
		return nil, &Problems{File: r.File, List: b.problems}
	}
	c := d.Common()
	c.Format, c.Scheme = format.format, format.scheme
	c.Losses = append(append(c.Losses, b.losses...), format.losses...)
	return d, nil
}

// open returns the fields of config.json and the family. Models with a vision tower have the fields of their text
// network in text_config; the fields of both objects are merged, and text_config has priority.
func (r Release) open() (map[string]json.RawMessage, Family, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Config, &fields); err != nil {
		return nil, "", fmt.Errorf("config: %s: %w", r.File, err)
	}
	family, err := familyOf(fields)
	if err != nil {
		return nil, "", fmt.Errorf("config: %s: %w", r.File, err)
	}
	inner, ok := fields["text_config"]
	if family == DeepseekV41 && !ok {
		return nil, "", fmt.Errorf("config: %s: model_type %s has no text_config, which holds the "+
			"fields of the text network; use the config.json of the release", r.File, family)
	}
	if ok {
		var text map[string]json.RawMessage
		if err := json.Unmarshal(inner, &text); err != nil {
			return nil, "", fmt.Errorf("config: %s: text_config: %w", r.File, err)
		}
		for name, value := range text {
			fields[name] = value
		}
		delete(fields, "text_config")
	}
	return fields, family, nil
}

// tensors adds a problem if the tensor names of an index contradict the drafting head in config.json.
func (b *builder) tensors(d Description, names []string) {
	v4, ok := d.(*V4)
	if !ok || names == nil {
		return
	}
	const first = "mtp.0.main_proj.weight" // only a DSpark head has it
	found := slices.Contains(names, first)
	drafts := slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "mtp.") })
	switch {
	case found && v4.DSpark == nil:
		b.addProblem("the tensor mtp.0.main_proj.weight belongs to a DSpark draft head, but config.json has no " +
			"dspark_ fields; use the config.json of the same release")
	case !found && v4.DSpark != nil && drafts:
		b.addProblem("config.json describes a DSpark draft head, but the tensor mtp.0.main_proj.weight is missing; " +
			"use the config.json of the same release")
	}
}

func (b *builder) describeDSA() *DSA {
	b.raw = &raw{}
	b.read("", b.fields, reflect.ValueOf(b.raw).Elem())
	return b.build()
}

// describeV4 reads the fields of DeepSeek-V4, in the official or the transformers spelling.
func (b *builder) describeV4() *V4 {
	v := v4Builder{builder: b}
	b.read("", b.fields, reflect.ValueOf(&v.in).Elem())
	v.readRopes(b.fields["rope_parameters"])
	c := v.build()
	c.DSpark = v.dspark(c)
	return c
}
