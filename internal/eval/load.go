package eval

import (
	"bufio"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"sparrow/internal/textfile"
)

// Task is a task file with its items.
type Task struct {
	Name  string
	Items []*Item
}

const (
	maxLineBytes = 16 << 20 // bytes of one item
	maxFileBytes = 1 << 30  // bytes of one file, decompressed
)

//go:embed tasks
var shipped embed.FS

// Shipped returns the task files embedded in the binary.
func Shipped() fs.FS {
	dir, err := fs.Sub(shipped, "tasks")
	if err != nil {
		panic(err) // cannot fail: the name is a constant
	}
	return dir
}

// Load reads the task files of a folder whose names match one of the patterns, sorted by name. Patterns have the syntax
// of path.Match and are separated by commas; an empty text selects all.
func Load(dir fs.FS, patterns string) ([]Task, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTask, err)
	}
	var names, found []string
	for _, e := range entries {
		name, ok := taskName(e.Name())
		if e.IsDir() || !ok {
			continue
		}
		names = append(names, name)
		match, err := matches(patterns, name)
		if err != nil {
			return nil, err
		}
		if match {
			found = append(found, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no task file in the folder; they end in .jsonl or .jsonl.gz", ErrTask)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: no task matches %q; the tasks are %s", ErrTask, patterns, strings.Join(names, ", "))
	}
	tasks := make([]Task, len(found))
	for i, name := range found {
		if tasks[i], err = LoadFile(dir, name); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// taskName returns the name of a task file without its extensions; ok is false for other files.
func taskName(file string) (string, bool) {
	return strings.CutSuffix(strings.TrimSuffix(path.Base(file), ".gz"), ".jsonl")
}

func matches(patterns, name string) (bool, error) {
	if patterns == "" {
		return true, nil
	}
	for p := range strings.SplitSeq(patterns, ",") {
		ok, err := path.Match(strings.TrimSpace(p), name)
		if err != nil {
			return false, fmt.Errorf("%w: pattern %q: %w", ErrTask, p, err)
		}
		if ok {
			return true, nil
		}
	}
	return false, nil
}

// LoadFile reads one task file.
func LoadFile(dir fs.FS, name string) (Task, error) {
	t, err := loadFile(dir, name)
	if err != nil {
		return Task{}, fmt.Errorf("%w: %s: %w", ErrTask, name, err)
	}
	return t, nil
}

func loadFile(dir fs.FS, name string) (Task, error) {
	task, ok := taskName(name)
	if !ok {
		return Task{}, errors.New("the name does not end in .jsonl or .jsonl.gz")
	}
	info, err := fs.Stat(dir, name)
	if err == nil {
		err = textfile.Check(name, info)
	}
	if err != nil {
		return Task{}, err
	}
	f, err := dir.Open(name)
	if err != nil {
		return Task{}, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return Task{}, err
		}
		r = z
	}
	items, err := readItems(r, task)
	return Task{Name: task, Items: items}, err
}

// readItems parses one item per line and skips empty lines.
func readItems(r io.Reader, task string) ([]*Item, error) {
	limited := &io.LimitedReader{R: r, N: maxFileBytes + 1}
	s := bufio.NewScanner(limited)
	s.Buffer(nil, maxLineBytes)
	var items []*Item
	for line := 1; s.Scan(); line++ {
		if len(strings.TrimSpace(s.Text())) == 0 {
			continue
		}
		it, err := parseItem(s.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		it.Task, it.Line = task, line
		items = append(items, it)
	}
	switch {
	case s.Err() != nil:
		return nil, fmt.Errorf("after %d items: %w", len(items), s.Err())
	case limited.N <= 0:
		return nil, fmt.Errorf("has more than %d bytes of text; split it", maxFileBytes)
	case len(items) == 0:
		return nil, errors.New("has no items; want one JSON object per line")
	}
	return items, nil
}

// Count returns the number of items of tasks, counting at most limit of each; 0 means no limit.
func Count(tasks []Task, limit int) int {
	n := 0
	for _, t := range tasks {
		n += len(t.first(limit))
	}
	return n
}

// first returns the first limit items of a task; 0 means all.
func (t Task) first(limit int) []*Item {
	if limit > 0 && limit < len(t.Items) {
		return t.Items[:limit]
	}
	return t.Items
}
