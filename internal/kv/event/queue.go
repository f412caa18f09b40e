package event

import (
	"slices"
	"strings"
	"sync"

	"sparrow/internal/kv/prefix"
)

// queue passes changes from the goroutine of the cache to the goroutine of the publisher.
type queue struct {
	mu    sync.Mutex
	list  []change
	limit int           // length of list at which it is reduced
	wake  chan struct{} // signals the publisher that the list is not empty; capacity 1
	salt  func([]byte) string
}

// minQueue is the minimum length of a queue that is reduced; a shorter queue needs little memory.
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

// take empties the queue. The caller owns the returned slice; the queue continues with spare.
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

// reduce drops every page that was stored and removed again. At most two changes are left for each page that existed
// before or exists now: the size of the cache limits both.
func reduce(list []change) []change {
	at := map[place]int{} // index of the latest stored change of each page
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

// listener writes the changes of one tier to the queue.
type listener struct {
	queue  *queue
	medium Medium
}

func (l listener) Stored(s prefix.Stored) {
	// Text in MessagePack is UTF-8, but salts read from files may be any bytes.
	salt := strings.ToValidUTF8(l.queue.salt(s.Salt), "\uFFFD")
	l.queue.add(change{kind: stored, medium: l.medium, page: page{id: shortHash(&s.Hash),
		parent: shortHash(&s.Parent), first: s.Parent == s.Root, root: shortHash(&s.Root), salt: salt,
		tokens: slices.Clone(s.Tokens)}})
}

func (l listener) Removed(h prefix.Hash) {
	l.queue.add(change{kind: removed, medium: l.medium, page: page{id: shortHash(&h)}})
}

// Root publishes the root of prompts without a salt.
func (l listener) Root(h prefix.Hash) {
	l.queue.add(change{kind: rooted, medium: l.medium, page: page{root: shortHash(&h)}})
}

func (l listener) Cleared() { l.queue.add(change{kind: cleared, medium: l.medium}) }
