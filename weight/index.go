package weight

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sparrow/internal/jsonscan"
	"sparrow/internal/mmap"
	"sparrow/internal/textfile"
)

// typicalPlacementBytes is the typical length of a tensor's text in an index. It is used to estimate the number of
// tensors.
const typicalPlacementBytes = 110

// placement is a tensor of the index with its file.
type placement struct {
	tensor string
	at     int64 // byte offset of the placement in the index
}

// openSharded opens the files that an index lists. Tensors of a shard that are not in the index are counted in
// FileInfo.Unlisted and otherwise ignored.
func openSharded(dir, indexPath string) (*Checkpoint, error) {
	text, err := readIndex(indexPath)
	if err != nil {
		return nil, err
	}
	byFile, err := parseIndex(indexPath, text)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint()
	total := 0
	for _, placed := range byFile {
		total += len(placed)
	}
	c.tensors = make(map[string]*Tensor, total)
	p := &problems{file: indexPath}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(byFile)) {
		placed := byFile[name]
		sh, err := c.mapShard(filepath.Join(dir, name))
		switch {
		case errors.Is(err, ErrNotFound):
			p.addKind(ErrNotFound, placed[0].at, placed[0].tensor,
				"file %q for this and %d more tensors is not in the folder (incomplete download?)", clip(name),
				len(placed)-1)
		case err != nil:
			errs = append(errs, err)
		default:
			c.addPlaced(sh, placed, p)
		}
	}
	if err := errors.Join(append(errs, p.err())...); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// addPlaced adds the tensors of a shard that the index places in it.
func (c *Checkpoint) addPlaced(sh *shard, placed []placement, p *problems) {
	byName := make(map[string]*Tensor, len(sh.tensors))
	for i := range sh.tensors {
		byName[sh.tensors[i].Name] = &sh.tensors[i]
	}
	for _, pl := range placed {
		t, ok := byName[pl.tensor]
		if !ok {
			p.addKind(ErrNotFound, pl.at, pl.tensor, "missing in file %q, which the index names for it; download "+
				"index and file again",
				filepath.Base(sh.info.Path))
			continue
		}
		c.add(sh, t)
	}
	c.addFile(sh)
}

// IndexedTensors returns the sorted names of the tensors in the text of an index; file is its name in errors.
func IndexedTensors(file string, text []byte) ([]string, error) {
	byFile, err := parseIndex(file, text)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, placed := range byFile {
		for _, p := range placed {
			names = append(names, p.tensor)
		}
	}
	slices.Sort(names)
	return names, nil
}

// readIndex reads an index of at most maxHeaderBytes bytes.
func readIndex(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("weight: checkpoint index: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("weight: checkpoint index %s: %w", path, mmap.ErrNotRegular)
	}
	if info.Size() > maxHeaderBytes {
		return nil, &FileError{File: path,
			Reason: fmt.Sprintf("index of %d bytes is over the limit of %d", info.Size(), maxHeaderBytes),
			Kind:   ErrMalformed}
	}
	text, err := textfile.Read(path, textfile.Index)
	if err != nil {
		return nil, fmt.Errorf("weight: checkpoint index: %w", err)
	}
	return text, nil
}

// parseIndex reads {"metadata": anything, "weight_map": {tensor: file}} and groups the tensors by file.
func parseIndex(file string, text []byte) (map[string][]placement, error) {
	p := &problems{file: file}
	if jsonscan.InvalidUTF8(text) >= 0 {
		p.add(0, "", "index is not valid UTF-8")
		return nil, p.err()
	}
	s := &jsonscan.Scanner{Text: text, Name: "index"}
	byFile := make(map[string][]placement)
	found := 0
	err := s.Object(func(key []byte, keyPos int) error {
		if string(key) != "weight_map" {
			return s.Skip()
		}
		if found++; found > 1 {
			p.add(int64(keyPos), "", "weight_map occurs twice")
		}
		return readWeightMap(s, p, byFile)
	})
	if err == nil {
		err = s.End("only white space after the index")
	}
	var syntax *jsonscan.SyntaxError
	if errors.As(err, &syntax) {
		p.add(int64(syntax.Pos), "", "index is not valid: %s", syntax.Reason)
	} else if found == 0 {
		p.add(0, "", "index has no weight_map")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return byFile, nil
}

func readWeightMap(s *jsonscan.Scanner, p *problems, byFile map[string][]placement) error {
	seen := make(map[string]struct{}, len(s.Text)/typicalPlacementBytes)
	bad := make(map[string]struct{}) // file names whose problem was reported
	return s.Object(func(key []byte, keyPos int) error {
		tensor := string(key)
		if _, twice := seen[tensor]; twice {
			p.add(int64(keyPos), tensor, "listed twice in the index; want each tensor once")
		}
		seen[tensor] = struct{}{}
		text, err := s.Str()
		if err != nil {
			return err
		}
		name := string(text)
		if _, known := byFile[name]; !known {
			if _, known := bad[name]; known {
				return nil
			}
			if reason := shardNameProblem(name); reason != "" {
				bad[name] = struct{}{}
				p.add(int64(keyPos), tensor, "file name %q %s", clip(name), reason)
				return nil
			}
		}
		byFile[name] = append(byFile[name], placement{tensor: tensor, at: int64(keyPos)})
		return nil
	})
}

// shardNameProblem returns the reason why a file name is not allowed in an index, or "". Shards must be in the folder
// of the index, so that a downloaded index cannot refer to other files.
func shardNameProblem(name string) string {
	switch {
	case name == "" || name == "." || name == "..":
		return "names no file"
	case strings.ContainsAny(name, `/\:`):
		return "leads out of the folder; only plain file names are allowed"
	case strings.ContainsRune(name, 0):
		return "contains a zero byte"
	case !strings.HasSuffix(name, extension):
		return "does not end in " + extension
	}
	return ""
}
