package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sparrow/weight"
)

// Cache is a folder of models in the folder layout of Hugging Face's tools.
type Cache struct {
	Root string
}

// CacheAt returns the cache that the environment selects: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE (its older name),
// HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, or .cache/huggingface/hub in the home folder.
func CacheAt(getenv func(string) string, home string) (Cache, error) {
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if v := getenv(name); v != "" {
			return Cache{Root: expand(v, home)}, nil
		}
	}
	at := homeAt(getenv, home)
	if at == "" {
		return Cache{}, errors.New("hub: this user has no home folder for a cache; set HF_HOME or HF_HUB_CACHE")
	}
	return Cache{Root: filepath.Join(at, "hub")}, nil
}

// Token returns the access token that the environment selects: HF_TOKEN, the file HF_TOKEN_PATH, or the file token in
// the folder of Hugging Face's tools. It is empty if there is none.
func Token(getenv func(string) string, home string) (string, error) {
	if v := getenv("HF_TOKEN"); v != "" {
		return strings.TrimSpace(v), nil
	}
	path := filepath.Join(homeAt(getenv, home), "token")
	if v := getenv("HF_TOKEN_PATH"); v != "" {
		path = expand(v, home)
	} else if homeAt(getenv, home) == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && getenv("HF_TOKEN_PATH") == "" {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("hub: access token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// homeAt returns the folder of Hugging Face's tools; it is empty if the environment defines none.
func homeAt(getenv func(string) string, home string) string {
	if v := getenv("HF_HOME"); v != "" {
		return expand(v, home)
	}
	if v := getenv("XDG_CACHE_HOME"); v != "" {
		return filepath.Join(v, "huggingface")
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".cache", "huggingface")
}

// expand replaces a leading ~ by the home folder, because services read environment files without a shell.
func expand(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(home, path[1:])
	}
	return path
}

// Find returns the folder of a model in the cache, or the path of the first of its GGUF files. Of the weights it reads
// only the index, which lists the files.
func (c Cache) Find(n Name) (at string, err error) {
	commit, err := c.commit(n)
	if err != nil {
		return "", err
	}
	dir := c.snapshot(n, commit)
	names, err := presentFiles(dir)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrIncomplete, n, err)
	}
	if list := quantsOf(names, func(string) int64 { return 0 }); len(list) > 0 &&
		(n.Quant != "" || !slices.Contains(names, configName)) {
		q, err := pick(n, list)
		if err != nil {
			return "", fmt.Errorf("%w; the files are in %s", err, dir)
		}
		return filepath.Join(dir, filepath.FromSlash(q.Files[0])), nil
	}
	if n.Quant != "" {
		return "", fmt.Errorf("%w: %s in %s", ErrNotCached, n, dir)
	}
	missing, err := missingFiles(dir, names)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrIncomplete, n, err)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("%w: %s in %s lacks %d files; the first missing one is %s", ErrIncomplete, n, dir,
			len(missing), missing[0])
	}
	return dir, nil
}

// commit returns the commit that the cache contains for the revision of a name.
func (c Cache) commit(n Name) (string, error) {
	commit := n.Revision
	if !n.isCommit() {
		text, err := os.ReadFile(c.ref(n))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%w: %s in %s", ErrNotCached, n, c.Root)
		case err != nil:
			return "", fmt.Errorf("hub: %w", err)
		}
		commit = string(bytes.TrimSpace(text))
		if !commitForm.MatchString(commit) {
			return "", fmt.Errorf("%w: %s contains %.60q, which is not a commit", ErrIncomplete, c.ref(n), commit)
		}
	}
	if info, err := os.Stat(c.snapshot(n, commit)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%w: %s (commit %s) in %s", ErrNotCached, n, commit, c.Root)
	}
	return commit, nil
}

// presentFiles lists the files of a snapshot, including those in subfolders. Links to missing blobs are not listed.
func presentFiles(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := os.Stat(at); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(dir, at)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	return names, err
}

// missingFiles returns the files of a model that are not in names, the files of a snapshot.
func missingFiles(dir string, names []string) ([]string, error) {
	files, err := weight.Files(dir, names, func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, name))
	})
	if err != nil {
		return nil, err
	}
	have := make(map[string]bool, len(names))
	for _, name := range names {
		have[name] = true
	}
	var missing []string
	for _, name := range append([]string{configName}, files...) {
		if !have[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

func (c Cache) model(n Name) string { return filepath.Join(c.Root, n.folder()) }
func (c Cache) ref(n Name) string {
	return filepath.Join(c.model(n), "refs", filepath.FromSlash(n.Revision))
}
func (c Cache) snapshot(n Name, commit string) string {
	return filepath.Join(c.model(n), "snapshots", commit)
}
func (c Cache) blob(n Name, hash string) string { return filepath.Join(c.model(n), "blobs", hash) }
func (c Cache) lock(n Name, hash string) string {
	return filepath.Join(c.Root, ".locks", n.folder(), hash+".lock")
}

// link adds a file to a snapshot as a link to its blob. The link is relative, so that the cache can be moved, or a hard
// link if the system does not allow ordinary users to make symbolic links.
func (c Cache) link(n Name, commit string, f File) error {
	at := filepath.Join(c.snapshot(n, commit), filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	blob := c.blob(n, f.Hash)
	target, err := filepath.Rel(filepath.Dir(at), blob)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if old, err := os.Readlink(at); err == nil && old == target {
		return nil
	}
	// The link is created under a temporary name first, because another download may create the same link at the same
	// time.
	temporary := temporaryName(at)
	if os.Symlink(target, temporary) != nil {
		if err := os.Link(blob, temporary); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
	}
	if err := os.Rename(temporary, at); err != nil {
		return fmt.Errorf("hub: %w", errors.Join(err, os.Remove(temporary)))
	}
	return nil
}

// temporaryName returns an unused name in the folder of path.
func temporaryName(path string) string { return fmt.Sprintf("%s.%016x.new", path, rand.Uint64()) }

// writeRef stores the commit of a branch or a tag in the cache.
func (c Cache) writeRef(n Name, commit string) error {
	if n.isCommit() {
		return nil
	}
	at := c.ref(n)
	if old, err := os.ReadFile(at); err == nil && string(old) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	temporary := temporaryName(at)
	if err := os.WriteFile(temporary, []byte(commit), 0o644); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := os.Rename(temporary, at); err != nil {
		return fmt.Errorf("hub: %w", errors.Join(err, os.Remove(temporary)))
	}
	return nil
}
