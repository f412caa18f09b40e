package grammar

import (
	"encoding/binary"
	"slices"
)

// arena is the part of a grammar's pushdown automaton that documents have explored. A document in progress is a state:
// a set of configurations (config). A configuration is a position inside a leaf and a stack of frames, the open objects
// and arrays. Frames, configs and states are interned: equal ones have equal numbers and are computed once.
//
// The Grammar's mutex guards the arena.
type arena struct {
	g *Grammar

	frames     []frame
	frameIndex map[frame]int32
	configs    []config
	configID   map[config]int32
	states     []state
	stateIndex map[string]int32
	after      map[ending]int32         // state after a complete leaf
	masks      map[configMask]*tokenSet // masks of states with a single config
	stateMasks map[int32]*tokenSet      // masks of states with several configs
	readings   int                      // bytes of the lists of configs of all states

	scratch  []int32 // configs that are being collected
	complete bool    // whether one of the collected configs completes the document
	key      []byte
	words    []uint64 // mask under construction
}

// frame is an open object or array: its node and the frame that encloses it. Frame 0 is the bottom of every stack.
type frame struct {
	node   int32
	place  place
	parent int32
	depth  int32 // depth of this object or array; 1 for the outermost
}

type config struct {
	leaf  int32
	q     uint64
	stack int32 // number of the top frame
}

// state is a set of configs; done reports whether one of them completes the document.
type state struct {
	configs []int32
	done    bool
	next    *[256]int32 // [byte] state after the byte, plus one; 0 if not computed yet; dead if the byte is not allowed
}

const dead = -1

// ending is a complete leaf: its outcome (tag) and the stack below the leaf.
type ending struct {
	stack, tag int32
}

// configMask holds the parts of a config that determine its mask.
type configMask struct {
	leaf  maskKey
	stack int32
}

func newArena(g *Grammar) *arena {
	return &arena{
		g:          g,
		frames:     make([]frame, 1),
		frameIndex: map[frame]int32{},
		configID:   map[config]int32{},
		stateIndex: map[string]int32{},
		after:      map[ending]int32{},
		masks:      map[configMask]*tokenSet{},
		stateMasks: map[int32]*tokenSet{},
		words:      make([]uint64, g.tokens.MaskWords()),
	}
}

// full reports whether the arena's states exceed their memory limit, so that the grammar needs a new arena.
func (a *arena) full() bool { return a.stateBytes() > maxArenaBytes }

// stateBytes returns the memory of states, configs, frames and their successors, including map entries.
func (a *arena) stateBytes() int {
	return a.readings + stateBytes*len(a.states) + 112*len(a.configs) + 96*len(a.frames) + 48*len(a.after)
}

// bytes returns the memory of the arena with its masks, each of which counts as a bitmap.
func (a *arena) bytes() int64 {
	return int64(a.stateBytes() + (len(a.masks)+len(a.stateMasks))*(8*len(a.words)+128))
}

// stateBytes is the size of a state in bytes, without its configs. Most of it is the table of next states.
const stateBytes = 1280

func (a *arena) push(f frame) int32 {
	id, ok := a.frameIndex[f]
	if !ok {
		id = int32(len(a.frames))
		a.frames = append(a.frames, f)
		a.frameIndex[f] = id
	}
	return id
}

// collect adds a config to the set under construction.
func (a *arena) collect(c config) {
	id, ok := a.configID[c]
	if !ok {
		id = int32(len(a.configs))
		a.configs = append(a.configs, c)
		a.configID[c] = id
	}
	a.scratch = append(a.scratch, id)
}

// intern returns the state for the configs in scratch[from:], which it removes from scratch; dead if there are none.
func (a *arena) intern(from int) int32 {
	list := a.scratch[from:]
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > maxWideLeaves {
		list = a.narrow(list)
	}
	done := a.complete
	a.complete = false
	a.scratch = a.scratch[:from]
	if len(list) == 0 && !done {
		return dead
	}
	a.key = a.key[:0]
	if done {
		a.key = append(a.key, 1)
	}
	for _, c := range list {
		a.key = binary.LittleEndian.AppendUint32(a.key, uint32(c))
	}
	if id, ok := a.stateIndex[string(a.key)]; ok {
		return id
	}
	id := int32(len(a.states))
	a.states = append(a.states, state{configs: slices.Clone(list), done: done})
	a.readings += 4*len(list) + len(a.key)
	a.stateIndex[string(a.key)] = id
	return id
}

// narrow reduces a large set of configs. Each config can be completed independently, so the document can still be
// completed, but fewer documents are allowed.
func (a *arena) narrow(list []int32) []int32 {
	wide := map[int32]bool{}
	kept := list[:0]
	for _, id := range list {
		l := a.configs[id].leaf
		if len(kept) == maxConfigs || a.g.wide(l) && !wide[l] && len(wide) == maxWideLeaves {
			a.g.narrowed.Store(true)
			continue
		}
		if a.g.wide(l) {
			wide[l] = true
		}
		kept = append(kept, id)
	}
	return kept
}

// step returns the state after one more byte, dead if the byte is not allowed.
func (a *arena) step(id int32, b byte) int32 {
	s := &a.states[id]
	if s.next == nil {
		s.next = new([256]int32)
	}
	if known := s.next[b]; known != 0 {
		if known == dead {
			return dead
		}
		return known - 1
	}
	table := s.next // a copy of the pointer, because s moves when states grows
	next := a.advance(s.configs, b)
	if next == dead {
		table[b] = dead
	} else {
		table[b] = next + 1
	}
	return next
}

func (a *arena) advance(configs []int32, b byte) int32 {
	from := len(a.scratch)
	complete := false
	for _, id := range configs {
		c := a.configs[id]
		l := a.g.leaves[c.leaf]
		q, ok := l.step(c.q, b)
		if !ok {
			continue
		}
		if l.open(q) {
			a.collect(config{c.leaf, q, c.stack})
		}
		if l.accepts(q) {
			next := a.follow(c.stack, tagOf(l, q))
			if next != dead {
				a.scratch = append(a.scratch, a.states[next].configs...)
				complete = complete || a.states[next].done
			}
		}
	}
	a.complete = complete
	return a.intern(from)
}

// follow returns the state after a complete leaf with the given stack.
func (a *arena) follow(stack, tag int32) int32 {
	key := ending{stack, tag}
	if id, ok := a.after[key]; ok {
		return id
	}
	from := len(a.scratch)
	a.leave(stack, tag)
	id := a.intern(from)
	a.after[key] = id
	return id
}

// initial returns the state before the first byte.
func (a *arena) initial() int32 {
	from := len(a.scratch)
	a.enter(a.g.root, 0)
	return a.intern(from)
}

// adopt copies a state from another arena of the same grammar.
func (a *arena) adopt(old *arena, id int32) int32 {
	from := len(a.scratch)
	for _, c := range old.states[id].configs {
		c := old.configs[c]
		c.stack = a.adoptStack(old, c.stack)
		a.collect(c)
	}
	a.complete = old.states[id].done
	return a.intern(from)
}

func (a *arena) adoptStack(old *arena, stack int32) int32 {
	if stack == 0 {
		return 0
	}
	f := old.frames[stack]
	f.parent = a.adoptStack(old, f.parent)
	return a.push(f)
}
