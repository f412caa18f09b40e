package event

import (
	"slices"
	"strings"
	"sync"

	"sparrow/internal/kv/prefix"
)

// queue passes changes from the goroutine of the cache to that of the publisher.
type queue struct {
	mu    sync.Mutex
	list  []change
	limit int           // length of list above which it is reduced
	wake  chan struct{} // wakes the publisher if list is not empty; capacity 1
	salt  func([]byte) string
}

// minQueue is the minimum length at which a queue is reduced.
const minQueue = 4096

func newQueue(salt func([]byte) string) *queue {
	if salt == nil {
		salt = func(b []byte) string { return string(b) }
	}
	return &queue{limit: minQueue, wake: make(chan struct{}, 1), salt: salt}
}

func (q *queue) add(c change) {
	q.mu.Lock()
	if c.kind == cleared {
		q.list = slices.DeleteFunc(q.list, func(x change) bool { return x.medium == c.medium && x.kind != rooted })
	}
	q.list = append(q.list, c)
	if len(q.list) >= q.limit {
		q.list = reduce(q.list)
		q.limit = max(minQueue, 2*len(q.list))
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all changes and empties the queue, which continues with the memory of spare.
func (q *queue) take(spare []change) []change {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	clear(spare)
	q.list, q.limit = spare[:0], minQueue
	return list
}

type place struct {
	medium Medium
	id     uint64
}

// reduce removes the changes of every page that was stored and then removed. At most two changes per page remain, so
// that the cache size limits their number.
func reduce(list []change) []change {
	at := map[place]int{} // index of each page's latest stored change
	for i := range list {
		c := &list[i]
		p := place{c.medium, c.id}
		switch c.kind {
		case stored:
			at[p] = i
		case removed:
			if j, ok := at[p]; ok {
				list[j].gone, c.gone = true, true
				delete(at, p)
			}
		}
	}
	return slices.DeleteFunc(list, func(c change) bool { return c.gone })
}

// listener adds the changes of one tier to the queue.
type listener struct {
	queue  *queue
	medium Medium
}

func (l listener) Stored(s prefix.Stored) {
	// MessagePack text must be UTF-8, but a salt may be any bytes.
	salt := strings.ToValidUTF8(l.queue.salt(s.Salt), "\uFFFD")
	l.queue.add(change{kind: stored, medium: l.medium, page: page{id: shortHash(&s.Hash),
		parent: shortHash(&s.Parent), first: s.Parent == s.Root, root: shortHash(&s.Root), salt: salt,
		tokens: slices.Clone(s.Tokens)}})
}

func (l listener) Removed(h prefix.Hash) {
	l.queue.add(change{kind: removed, medium: l.medium, page: page{id: shortHash(&h)}})
}

// Root adds the root hash of prompts without a salt.
func (l listener) Root(h prefix.Hash) {
	l.queue.add(change{kind: rooted, medium: l.medium, page: page{root: shortHash(&h)}})
}

func (l listener) Cleared() { l.queue.add(change{kind: cleared, medium: l.medium}) }
