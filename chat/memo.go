package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"sparrow/internal/jinja"
)

// Memo caches tools in the form in which prompts show them, so that tools that a client sends in every turn are
// rendered only once. The zero value is ready to use, and a nil Memo caches nothing. It is safe for concurrent use.
type Memo struct {
	mu    sync.Mutex
	tools map[[sha256.Size]byte]*shownTool
	bytes int   // bytes of stored declarations of tools
	read  int64 // number of tools that were parsed so far
}

// maxMemo is the maximum number of bytes of stored declarations. If it is exceeded, all of them are dropped.
const maxMemo = 8 << 20

// shownTool is a parsed tool. It is immutable.
type shownTool struct {
	function *jinja.Dict // tool as an object with OpenAI's members name, description, parameters, strict
	line     string      // function as JSON text with the separators of Python's json.dumps
	schema   *jinja.Dict // schema of the arguments; nil if there is none
	err      error       // error of parsing the schema
}

// Read returns the number of tools that were parsed so far.
func (m *Memo) Read() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read
}

// tool returns a tool in the form in which prompts show it.
func (m *Memo) tool(t *Tool) *shownTool {
	if m == nil {
		return readTool(t)
	}
	key := toolKey(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.tools[key]; known != nil {
		return known
	}
	size := len(t.Name) + len(t.Description) + len(t.Parameters)
	if m.bytes += size; m.tools == nil || m.bytes > maxMemo {
		m.tools, m.bytes = map[[sha256.Size]byte]*shownTool{}, size
	}
	m.read++
	shown := readTool(t)
	m.tools[key] = shown
	return shown
}

// toolKey returns the hash of a tool, the key of shownTool values.
func toolKey(t *Tool) [sha256.Size]byte {
	text := make([]byte, 0, 32+len(t.Name)+len(t.Description)+len(t.Parameters))
	for _, part := range []string{t.Name, t.Description} {
		text = binary.AppendUvarint(text, uint64(len(part)))
		text = append(text, part...)
	}
	if t.Strict {
		text = append(text, 1)
	} else {
		text = append(text, 0)
	}
	return sha256.Sum256(append(text, t.Parameters...))
}

// readTool parses a tool: name, description, parameters, strict; the last three only if given.
func readTool(t *Tool) *shownTool {
	out := &shownTool{function: jinja.NewDict()}
	out.function.Set("name", t.Name)
	if t.Description != "" {
		out.function.Set("description", t.Description)
	}
	if len(t.Parameters) > 0 {
		v, err := jinja.ParseJSON(t.Parameters)
		out.err = err
		if err == nil {
			out.function.Set("parameters", v)
			out.schema, _ = v.(*jinja.Dict)
		}
	}
	if t.Strict {
		out.function.Set("strict", true)
	}
	line, err := jinja.JSON(out.function)
	if out.line = line; out.err == nil {
		out.err = err
	}
	return out
}
