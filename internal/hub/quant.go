package hub

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sparrow/weight/gguf"
)

// Quant is one GGUF model of a repository: a file, or all its splits. A repository contains several of different size.
type Quant struct {
	// Name is the part of the file name with the quantization type, such as "UD-Q2_K_XL", or else the whole file name.
	Name  string   `json:"name"`
	Bytes int64    `json:"bytes"`
	Files []string `json:"files"` // paths in the repository, in order of the splits

	stem  string // path without split number and extension: "UD-Q2_K_XL/GLM-5.2-UD-Q2_K_XL"
	parts int    // number of splits according to the file names
}

var (
	// quantEnd matches the quantization type at the end of a file name without extension: "GLM-5.2-UD-IQ2_M",
	// "tiny.Q4_K_M", "BF16".
	quantEnd = regexp.MustCompile(`(?i)(?:^|[-.])((?:UD-)?(?:I?Q|TQ)[0-9]+(?:_[0-9A-Z]+)*|` +
		`BF16|F16|F32|(?:MX|NV)FP4(?:_[0-9A-Z]+)*)$`)
	partForm = regexp.MustCompile(`-[0-9]{5}-of-([0-9]{5})\.gguf$`)
	// notModels matches the names of GGUF files that are not models: image encoders, activation statistics and draft
	// heads.
	notModels = regexp.MustCompile(`(?i)mmproj|imatrix|^(mtp|dspark|eagle3|dflash)-|-mtp-`)
)

// quantsOf returns the GGUF models in a list of files; size returns the size of a file.
func quantsOf(names []string, size func(name string) int64) []Quant {
	names = slices.Sorted(slices.Values(names))
	var list []Quant
	for _, name := range names {
		base := path.Base(name)
		if !strings.HasSuffix(base, gguf.Extension) || notModels.MatchString(base) {
			continue
		}
		stem, parts := path.Join(path.Dir(name), gguf.Stem(base)), 1
		if m := partForm.FindStringSubmatch(base); m != nil {
			parts, _ = strconv.Atoi(m[1])
		}
		i := slices.IndexFunc(list, func(q Quant) bool { return q.stem == stem && q.parts == parts })
		if i < 0 {
			i, list = len(list), append(list, Quant{Name: quantLabel(stem), stem: stem, parts: parts})
		}
		list[i].Files = append(list[i].Files, name)
		list[i].Bytes += size(name)
	}
	count := map[string]int{}
	for _, q := range list {
		count[strings.ToLower(q.Name)]++
	}
	for i, q := range list { // models with equal names are named by their paths
		if count[strings.ToLower(q.Name)] > 1 {
			list[i].Name = q.stem
		}
	}
	slices.SortStableFunc(list, func(a, b Quant) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return list
}

// quantLabel returns the part of a path with the quantization type, or else the file name without extension.
func quantLabel(stem string) string {
	for _, part := range []string{path.Base(stem), path.Base(path.Dir(stem))} {
		if m := quantEnd.FindStringSubmatch(part); m != nil {
			return m[1]
		}
	}
	return path.Base(stem)
}

// pick returns the quant that n.Quant selects, ignoring case: the one with this name, path or file, or else the only
// one that contains it between hyphens or dots. If n.Quant is empty, it returns the only quant.
func pick(n Name, list []Quant) (Quant, error) {
	word := regexp.MustCompile(`(?i)(?:^|[-./])` + regexp.QuoteMeta(n.Quant) + `(?:[-./]|$)`)
	for _, means := range []func(Quant) bool{
		func(q Quant) bool {
			file := strings.TrimSuffix(n.Quant, gguf.Extension)
			return n.Quant == "" || strings.EqualFold(q.Name, n.Quant) || strings.EqualFold(q.stem, file) ||
				strings.EqualFold(path.Base(q.stem), file) || slices.Contains(q.Files, n.Quant)
		},
		func(q Quant) bool { return word.MatchString(q.stem) },
	} {
		var found []Quant
		for _, q := range list {
			if means(q) {
				found = append(found, q)
			}
		}
		switch {
		case len(found) > 1:
			return Quant{}, fmt.Errorf("%w: %s matches %s; put one of them after the colon", ErrQuant, n,
				QuantNames(found))
		case len(found) == 1 && len(found[0].Files) != found[0].parts:
			return Quant{}, fmt.Errorf("%w: %s: only %d of %d parts of %s are present", ErrIncomplete, n,
				len(found[0].Files), found[0].parts, found[0].stem)
		case len(found) == 1:
			return found[0], nil
		}
	}
	return Quant{}, fmt.Errorf("%w: %s is not one of %s", ErrQuant, n, QuantNames(list))
}

// QuantNames returns the names of quants as text for messages.
func QuantNames(list []Quant) string {
	var names []string
	for _, q := range list {
		names = append(names, q.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "its files, none of which is a GGUF model")
}
