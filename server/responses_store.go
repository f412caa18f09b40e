package server

import (
	"container/list"
	"strconv"
	"strings"
	"sync"

	"sparrow/api/openai"
	"sparrow/internal/footprint"
)

// stored is a stored response. It is read-only.
type stored struct {
	response     *openai.Response
	conversation []openai.Item // conversation before the answer
}

// size returns the approximate memory in bytes. Data shared with the previous response is counted for both, because
// either may be dropped first.
func (s *stored) size() int {
	const place = 512 // bytes of its structures and entries in maps
	return place + footprint.Of(s)
}

// responseStore stores responses in memory, up to a maximum number of bytes. Tenants can read only their own responses.
// If the store is full, the oldest response of the tenant with the most bytes is dropped.
type responseStore struct {
	limit int

	mu      sync.Mutex
	used    int
	tenants map[string]*tenantStore
}

// tenantStore holds the responses of one tenant, oldest first.
type tenantStore struct {
	used  int
	order *list.List // elements are *storeEntry
	byID  map[string]*list.Element
}

type storeEntry struct {
	*stored
	size int
}

func newResponseStore(limit int) *responseStore {
	return &responseStore{limit: limit, tenants: map[string]*tenantStore{}}
}

// put stores a response, unless it is larger than the limit.
func (s *responseStore) put(tenant string, r *stored) {
	size := r.size()
	if size > s.limit {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[tenant]
	if t == nil {
		t = &tenantStore{order: list.New(), byID: map[string]*list.Element{}}
		s.tenants[tenant] = t
	}
	t.byID[r.response.ID] = t.order.PushBack(&storeEntry{r, size})
	t.used += size
	s.used += size
	for s.used > s.limit {
		name := s.largest()
		s.drop(name, s.tenants[name].order.Front())
	}
}

// largest returns the tenant with the most bytes.
func (s *responseStore) largest() (name string) {
	most := -1
	for each, t := range s.tenants {
		if t.used > most {
			name, most = each, t.used
		}
	}
	return name
}

func (s *responseStore) drop(tenant string, at *list.Element) {
	t := s.tenants[tenant]
	e := t.order.Remove(at).(*storeEntry)
	delete(t.byID, e.response.ID)
	t.used -= e.size
	s.used -= e.size
	if t.order.Len() == 0 {
		delete(s.tenants, tenant)
	}
}

// get returns a response, or nil if the tenant has none with this id.
func (s *responseStore) get(tenant, id string) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenant]; t != nil {
		if at := t.byID[id]; at != nil {
			return at.Value.(*storeEntry).stored
		}
	}
	return nil
}

// remove removes a response. It returns false if there was none.
func (s *responseStore) remove(tenant, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[tenant]
	if t == nil || t.byID[id] == nil {
		return false
	}
	s.drop(tenant, t.byID[id])
	return true
}

// item returns an item of a stored response, or nil. The id of an item contains the name of the response and an index.
func (s *responseStore) item(tenant, id string) *openai.Item {
	parts := strings.Split(id, "_") // prefix, name of the response, index of the item
	if len(parts) != 3 {
		return nil
	}
	i, err := strconv.Atoi(parts[2])
	r := s.get(tenant, responseID(parts[1]))
	if err != nil || r == nil || i < 0 || i >= len(r.response.Output) || r.response.Output[i].ID != id {
		return nil
	}
	return &r.response.Output[i]
}

func responseID(name string) string { return "resp_" + name }
