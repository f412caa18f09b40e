package hub

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Local is a GGUF model that another engine has downloaded. Its files are never changed.
type Local struct {
	Engine string `json:"engine"` // name of the engine, such as "llama.cpp"
	Path   string `json:"path"`   // path of the file, or of the first split
	Quant  string `json:"quant"`
	Bytes  int64  `json:"bytes"` // bytes of all splits
}

// Elsewhere looks for a model in the folders of other engines, which the environment may set: llama.cpp's cache, LM
// Studio's models, and Ollama's models from Hugging Face. If the name has a quant, it returns only that one. Folders
// that cannot be read are skipped.
func Elsewhere(getenv func(string) string, home string, n Name) (found []Local) {
	for _, f := range otherFolders(getenv, home) {
		found = append(found, f.look(f, n)...)
	}
	return found
}

// folder is the model folder of another engine, with a function that finds a model in it.
type folder struct {
	engine, root string
	look         func(folder, Name) []Local
}

func otherFolders(getenv func(string) string, home string) (list []folder) {
	add := func(engine, root string, look func(folder, Name) []Local) {
		if filepath.IsAbs(root) {
			list = append(list, folder{engine, root, look})
		}
	}
	if v := getenv("LLAMA_CACHE"); v != "" {
		add("llama.cpp", expand(v, home), folder.flat)
	} else {
		if v := getenv("XDG_CACHE_HOME"); v != "" {
			add("llama.cpp", filepath.Join(v, "llama.cpp"), folder.flat)
		}
		add("llama.cpp", filepath.Join(home, ".cache", "llama.cpp"), folder.flat)
		add("llama.cpp", filepath.Join(home, "Library", "Caches", "llama.cpp"), folder.flat)
	}
	add("LM Studio", filepath.Join(home, ".lmstudio", "models"), folder.nested)
	add("LM Studio", filepath.Join(home, ".cache", "lm-studio", "models"), folder.nested)
	if v := getenv("OLLAMA_MODELS"); v != "" {
		add("Ollama", expand(v, home), folder.manifests)
	} else {
		add("Ollama", filepath.Join(home, ".ollama", "models"), folder.manifests)
		add("Ollama", "/usr/share/ollama/.ollama/models", folder.manifests)
	}
	return list
}

// flat finds ORGANISATION_NAME_FILE.gguf; slashes in the name are replaced by underscores.
func (f folder) flat(n Name) []Local {
	prefix := strings.ReplaceAll(n.Repo, "/", "_") + "_"
	entries, _ := os.ReadDir(f.root)
	var names []string
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), prefix); ok {
			names = append(names, rest)
		}
	}
	return f.quants(n, names, func(name string) string { return filepath.Join(f.root, prefix+name) })
}

// nested finds ORGANISATION/NAME/FILE.gguf.
func (f folder) nested(n Name) []Local {
	dir := filepath.Join(f.root, filepath.FromSlash(n.Repo))
	names, _ := presentFiles(dir)
	return f.quants(n, names, func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) })
}

// quants returns the GGUF models in a list of files that n selects; at returns the path of a file.
func (f folder) quants(n Name, names []string, at func(name string) string) (found []Local) {
	list := quantsOf(names, func(name string) int64 { return sizeOf(at(name)) })
	if n.Quant != "" {
		q, err := pick(n, list)
		if err != nil {
			return nil // the blob may belong to another model
		}
		list = []Quant{q}
	}
	for _, q := range list {
		if len(q.Files) == q.parts {
			found = append(found, Local{f.engine, at(q.Files[0]), q.Name, q.Bytes})
		}
	}
	return found
}

var blobForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// manifests finds the blob that manifests/hf.co/ORGANISATION/NAME/QUANT refers to.
func (f folder) manifests(n Name) (found []Local) {
	for _, host := range []string{"hf.co", "huggingface.co"} {
		dir := filepath.Join(f.root, "manifests", host, filepath.FromSlash(n.Repo))
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if n.Quant != "" && !strings.EqualFold(e.Name(), n.Quant) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			var m struct {
				Layers []struct{ MediaType, Digest string }
			}
			if err != nil || json.Unmarshal(text, &m) != nil {
				continue
			}
			for _, l := range m.Layers {
				at := filepath.Join(f.root, "blobs", strings.Replace(l.Digest, ":", "-", 1))
				if l.MediaType == "application/vnd.ollama.image.model" && blobForm.MatchString(l.Digest) &&
					sizeOf(at) > 0 {
					found = append(found, Local{f.engine, at, e.Name(), sizeOf(at)})
				}
			}
		}
	}
	return found
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}
