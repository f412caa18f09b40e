package hub

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// defaultRevision is the branch that is used if a name has no revision.
const defaultRevision = "main"

// Name is the name of a model on a hub: organisation, name and revision, and optionally one of its GGUF models.
type Name struct {
	Repo     string // organisation and name, such as "deepseek-ai/DeepSeek-V3.2"
	Revision string // branch, tag or commit; "main" if none was given
	Quant    string // name of a [Quant], such as "UD-Q2_K_XL"; empty if none was given
}

// Each part of a name must begin with a letter or a digit, so that it cannot be an option, a hidden folder or a parent
// folder.
var (
	repoForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	quantForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)
	commitForm = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ParseName parses ORGANISATION/NAME, optionally followed by :QUANT, by @REVISION or by both in this order.
func ParseName(text string) (Name, error) {
	named, revision, given := strings.Cut(text, "@")
	repo, quant, chosen := strings.Cut(named, ":")
	// Two hyphens separate the parts in the name of a cache folder, so names must not contain them.
	if !repoForm.MatchString(repo) || strings.Contains(repo, "..") || strings.Contains(repo, "--") {
		return Name{}, fmt.Errorf("%w: %.200q; want organisation/name, such as deepseek-ai/DeepSeek-V3.2, and "+
			"optionally @ with a branch, a tag or a commit", ErrName, text)
	}
	if chosen && (!quantForm.MatchString(quant) || !safePath(quant)) {
		return Name{}, fmt.Errorf("%w: %.200q has no usable name of a GGUF file after the colon; want one such as "+
			"UD-Q2_K_XL", ErrName, text)
	}
	if !given {
		revision = defaultRevision
	}
	if !safePath(revision) || strings.ContainsAny(revision, "@?#% ") || len(revision) > 200 {
		return Name{}, fmt.Errorf("%w: %.200q has no usable revision after the @; want a branch, a tag or a commit "+
			"of 40 hexadecimal digits", ErrName, text)
	}
	return Name{Repo: repo, Revision: revision, Quant: quant}, nil
}

// String returns the name as the user typed it.
func (n Name) String() string {
	text := n.Repo
	if n.Quant != "" {
		text += ":" + n.Quant
	}
	if n.Revision != defaultRevision {
		text += "@" + n.Revision
	}
	return text
}

// isCommit reports whether the revision is a commit hash.
func (n Name) isCommit() bool { return commitForm.MatchString(n.Revision) }

// folder returns the name of the model's folder in the cache.
func (n Name) folder() string { return "models--" + strings.ReplaceAll(n.Repo, "/", "--") }

// safePath reports whether a path from the server is relative and stays inside its folder, on every operating system.
func safePath(path string) bool {
	if path == "" || !filepath.IsLocal(path) || strings.ContainsAny(path, `\:`) {
		return false
	}
	for _, part := range strings.Split(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f })
}
