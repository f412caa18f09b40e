package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"sparrow/weight"
)

// File is a file of a model on the server.
type File struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Hash is the hash of the contents: SHA-256 (64 digits) or git's blob hash, a SHA-1 of a header and the contents
	// (40 digits).
	Hash string `json:"hash"`
}

const (
	configName = "config.json"
	// maxListing is the maximum size of the list of a model's files, maxText that of a file that is read before the
	// download, in bytes.
	maxListing, maxText = 64 << 20, 256 << 20
	// maxFile is the maximum size of a file in bytes, small enough that sums of sizes fit in an int64.
	maxFile = 1 << 46
	// maxFiles is the maximum number of files of a model.
	maxFiles = 100_000
)

// textFiles lists the files that the engine reads in addition to weights. Only config.json is required.
var textFiles = []string{configName, "generation_config.json", "tokenizer.json", "tiktoken.model",
	"tokenizer_config.json", "chat_template.jinja", quantName, "quantize_config.json"}

// quantName is the file with the weight format of releases made with NVIDIA's modelopt. It is read before a download.
const quantName = "hf_quant_config.json"

// isEncoder reports whether a file is the Python file with which a release renders prompts. It is never run, only
// searched for names that distinguish releases.
func isEncoder(name string) bool {
	rest, ok := strings.CutPrefix(name, "encoding/")
	return ok && strings.HasSuffix(rest, ".py") && !strings.Contains(rest, "/")
}

// listing is the server's list of a model's files at a revision.
type listing struct {
	commit       string
	files        map[string]File
	architecture string // architecture of the GGUF files, if the server reports it
}

// list requests the commit of a revision and its files.
func (p *Puller) list(ctx context.Context, n Name) (*listing, error) {
	at := p.endpoint + "/api/models/" + n.Repo + "/revision/" + url.PathEscape(n.Revision) + "?blobs=true"
	text, err := p.get(ctx, at, maxListing)
	if err != nil {
		return nil, p.explain(n, err)
	}
	var body struct {
		SHA  string `json:"sha"`
		GGUF struct {
			Architecture string `json:"architecture"`
		} `json:"gguf"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size *int64 `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("%w: reading the list of files of %s: %w", ErrServer, n, err)
	}
	if !commitForm.MatchString(body.SHA) || len(body.Siblings) > maxFiles {
		return nil, fmt.Errorf("%w: %s is listed at commit %.60q with %d files; want a commit of 40 hexadecimal "+
			"digits and at most %d files", ErrServer, n, body.SHA, len(body.Siblings), maxFiles)
	}
	if n.isCommit() && body.SHA != n.Revision {
		return nil, fmt.Errorf("%w: commit %s was requested, but %s was listed", ErrServer, n.Revision, body.SHA)
	}
	l := &listing{commit: body.SHA, architecture: body.GGUF.Architecture,
		files: make(map[string]File, len(body.Siblings))}
	for _, s := range body.Siblings {
		f := File{Path: s.Name, Size: -1, Hash: s.Blob}
		if s.Size != nil {
			f.Size = *s.Size
		}
		if s.LFS != nil {
			f.Size, f.Hash = s.LFS.Size, s.LFS.SHA256
		}
		// A path outside the folder is not accidental, so the whole list is refused.
		if !safePath(f.Path) {
			return nil, fmt.Errorf("%w: %s lists a file named %.200q, which leads out of the model's folder", ErrServer,
				n, f.Path)
		}
		if _, twice := l.files[f.Path]; twice {
			return nil, fmt.Errorf("%w: %s lists %.200q twice", ErrServer, n, f.Path)
		}
		l.files[f.Path] = f
	}
	return l, nil
}

// choose returns the files to download, and the contents of the files that it has read to select them, by hash.
func (p *Puller) choose(ctx context.Context, n Name, l *listing) (files []File, texts map[string][]byte, err error) {
	names := slices.Sorted(maps.Keys(l.files))
	if _, ok := l.files[configName]; !ok {
		return nil, nil, fmt.Errorf("hub: %s has no %s, so it cannot be served%s", n, configName,
			otherFormats(names))
	}
	texts = map[string][]byte{}
	read := func(name string) ([]byte, error) {
		f, err := l.file(n, name)
		if err != nil {
			return nil, err
		}
		texts[f.Hash], err = p.text(ctx, n, l.commit, f)
		return texts[f.Hash], err
	}
	for _, name := range []string{configName, quantName} {
		if _, ok := l.files[name]; !ok {
			continue // all of these files except quantName are required or absent
		}
		if _, err := read(name); err != nil {
			return nil, nil, err
		}
	}
	wanted, err := weight.Files(n.Repo, names, read)
	if err != nil {
		return nil, nil, fmt.Errorf("hub: %w%s", err, otherFormats(names))
	}
	for _, name := range names {
		if slices.Contains(textFiles, name) || isEncoder(name) {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	for _, name := range wanted {
		f, err := l.file(n, name)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
	}
	return files, texts, nil
}

// chooseQuant selects the files of the GGUF model that a name refers to. If the name has no quant, it selects none if
// the repository has safetensors files or several GGUF models.
func (l *listing) chooseQuant(n Name) (list []Quant, files []File, err error) {
	names := slices.Collect(maps.Keys(l.files))
	list = quantsOf(names, func(name string) int64 { return l.files[name].Size })
	safetensors := slices.ContainsFunc(names, func(s string) bool { return strings.HasSuffix(s, ".safetensors") })
	if n.Quant == "" && (len(list) != 1 || safetensors) {
		if safetensors {
			list = nil
		}
		return list, nil, nil
	}
	q, err := pick(n, list)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range q.Files {
		f, err := l.file(n, name)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
	}
	return []Quant{q}, files, nil
}

// file returns a listed file after checking its size and hash.
func (l *listing) file(n Name, name string) (File, error) {
	f, ok := l.files[name]
	switch {
	case !ok:
		return f, fmt.Errorf("%w: the index of %s lists %s, which is not among its files", ErrServer, n, name)
	case f.Size < 0 || f.Size > maxFile:
		return f, fmt.Errorf("%w: %s of %s has a size of %d bytes", ErrServer, name, n, f.Size)
	case newDigest(f) == nil:
		return f, fmt.Errorf("%w: %s of %s has the hash %.80q; want 64 digits of SHA-256 or 40 of a git blob",
			ErrServer, name, n, f.Hash)
	}
	return f, nil
}

// otherFormats returns the names of unsupported weight formats among the files, for an error.
func otherFormats(names []string) string {
	has := func(suffix string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, suffix) })
	}
	for _, suffix := range []string{".bin", ".pt", ".pth"} {
		if has(suffix) {
			return "; it has *" + suffix + " files, but weights are read only from *.safetensors"
		}
	}
	return ""
}
