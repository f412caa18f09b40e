package weight

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// TrimPrefix removes a prefix from the names that begin with it; other names do not change. If another tensor already
// has the shorter name, that tensor is kept. It must be called before the checkpoint is shared.
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
	c.sortNames()
}

// Drop removes the tensors whose names begin with one of the prefixes: they are neither found nor counted. It must be
// called before the checkpoint is shared.
func (c *Checkpoint) Drop(prefixes ...string) {
	c.list = slices.DeleteFunc(c.list, func(t *Tensor) bool {
		drop := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(t.Name, p) })
		if drop {
			c.bytes -= t.Bytes()
			delete(c.tensors, t.Name)
		}
		return drop
	})
	c.sortNames()
}

func (c *Checkpoint) sortNames() {
	c.names = sync.OnceValue(func() []string { return slices.Sorted(maps.Keys(c.tensors)) })
}
