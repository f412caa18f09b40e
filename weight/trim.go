package weight

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// TrimPrefix takes a prefix off the names that begin with it; others stay. Of two tensors that would have one name the
// one without the prefix keeps it. It is called before the checkpoint is used by others.
func (c *Checkpoint) TrimPrefix(prefix string) {
	for _, name := range c.Names() {
		short, ok := strings.CutPrefix(name, prefix)
		if _, taken := c.tensors[short]; !ok || prefix == "" || taken {
			continue
		}
		t := c.tensors[name]
		t.Name, c.tensors[short] = short, t
		delete(c.tensors, name)
	}
	c.names = sync.OnceValue(func() []string { return slices.Sorted(maps.Keys(c.tensors)) })
}
