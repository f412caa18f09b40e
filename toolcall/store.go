package toolcall

import (
	"container/list"
	"crypto/sha256"
	"sync"

	"sparrow/grammar"
)

// Store caches compiled schemas of tools, because clients send the same tools in every turn. It is safe for concurrent
// use. Above its limit, schemas that are not in use are dropped, the least recently used first.
type Store struct {
	most int // maximum number of bytes

	mu       sync.Mutex
	bytes    int
	entries  map[storeKey]*entry
	idle     *list.List // entries (*entry) without users, least recently used first
	compiled int64
}

// storeKey is a hash of a schema and of whether it is strict.
type storeKey [sha256.Size]byte

// entry is a compiled schema.
type entry struct {
	key   storeKey
	args  *grammar.Grammar
	whole bool // whether the grammar does not support the schema, so that args accepts any object
	bytes int
	users int
	place *list.Element // element of idle; nil if the entry has users
}

// NewStore returns a store of at most the given number of bytes.
func NewStore(most int) *Store {
	return &Store{most: most, entries: map[storeKey]*entry{}, idle: list.New()}
}

// Compiled returns the number of schemas that were compiled.
func (s *Store) Compiled() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compiled
}

// Bytes returns the bytes of the cached schemas.
func (s *Store) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// use returns the entry of a schema, which is compiled if it is not cached. The caller calls giveBack.
func (s *Store) use(schema []byte, strict bool, compile func() (*grammar.Grammar, bool, error)) (*entry, error) {
	mode := byte(0)
	if strict {
		mode = 1
	}
	key := storeKey(sha256.Sum256(append([]byte{mode}, schema...)))
	if e := s.take(key); e != nil {
		return e, nil
	}
	args, whole, err := compile() // compiled without the lock, because it may take long
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compiled++
	if e := s.entries[key]; e != nil { // another request has stored it meanwhile
		args.Release()
		s.begin(e)
		return e, nil
	}
	e := &entry{key: key, args: args, whole: whole, bytes: args.Bytes(), users: 1}
	s.entries[key] = e
	s.bytes += e.bytes
	s.shrink()
	return e, nil
}

func (s *Store) take(key storeKey) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e != nil {
		s.begin(e)
	}
	return e
}

// begin adds a user to an entry. The caller holds mu.
func (s *Store) begin(e *entry) {
	if e.users++; e.place != nil {
		s.idle.Remove(e.place)
		e.place = nil
	}
}

// giveBack removes a user of an entry.
func (s *Store) giveBack(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.users--; e.users == 0 {
		e.place = s.idle.PushBack(e)
		s.shrink()
	}
}

// shrink drops schemas without users until the limit is met. The caller holds mu.
func (s *Store) shrink() {
	for s.bytes > s.most && s.idle.Len() > 0 {
		e := s.idle.Remove(s.idle.Front()).(*entry)
		delete(s.entries, e.key)
		s.bytes -= e.bytes
		e.args.Release()
	}
}
