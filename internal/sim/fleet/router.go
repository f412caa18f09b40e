package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Policy is the name of a routing policy.
type Policy string

// Routing policies.
const (
	RoundRobin  Policy = "round-robin"
	LeastLoaded Policy = "least-loaded" // the replica with the fewest running and waiting sequences
	// Prefix chooses the replica to which the longest prefix of the prompt was sent. If this is less than half of the
	// prompt, or if that replica has a much higher load than others, it chooses the least loaded replica.
	Prefix Policy = "prefix"
)

// Policies returns all policies.
func Policies() []Policy { return []Policy{RoundRobin, LeastLoaded, Prefix} }

// ParsePolicy returns the policy with the given name.
func ParsePolicy(text string) (Policy, error) {
	if p := Policy(text); slices.Contains(Policies(), p) {
		return p, nil
	}
	return "", fmt.Errorf("policy %q: want one of %v", text, Policies())
}

// Limits of the policy Prefix, with the values of common routers. A replica is not chosen if its load exceeds that of
// the least loaded replica by more than mostAhead and also by more than the factor mostFactor.
const (
	mostAhead  = 32  // sequences
	mostFactor = 1.5 // ratio of the loads
	leastShare = 0.5 // minimum share of the prompt's pages in the prefix
)

// router chooses replicas. It records which pages of tokens were sent to which replica.
type router struct {
	policy   Policy
	draw     *rand.Rand // for random choices among equal replicas
	page     int
	capacity int // maximum number of recorded pages per replica
	next     int
	sent     []*recent // [replica] hashes of recorded pages
}

func newRouter(p Policy, replicas, page, capacity int, seed uint64) *router {
	r := &router{policy: p, draw: rand.New(rand.NewPCG(seed, 4)), page: page, capacity: capacity}
	for range replicas {
		r.sent = append(r.sent, newRecent(capacity))
	}
	return r
}

// forget removes the records of a replica, whose cache was lost.
func (r *router) forget(replica int) { r.sent[replica] = newRecent(r.capacity) }

// choose returns the replica for a prompt. load holds the number of sequences of each replica, or -1 if it is not
// available; at least one must be available.
func (r *router) choose(tenant string, prompt []int32, load []int) int {
	chain := r.chain(tenant, prompt)
	at := r.pick(chain, load)
	for _, h := range chain {
		r.sent[at].add(h)
	}
	return at
}

func (r *router) pick(chain []uint64, load []int) int {
	if r.policy == RoundRobin {
		for {
			r.next++
			if at := (r.next - 1) % len(load); load[at] >= 0 {
				return at
			}
		}
	}
	least := r.least(load, func(int) bool { return true })
	if r.policy == LeastLoaded || len(chain) == 0 {
		return least
	}
	matched := make([]int, len(load))
	for i := range load {
		for matched[i] < len(chain) && r.sent[i].has(chain[matched[i]]) {
			matched[i]++
		}
		if load[i] < 0 {
			matched[i] = -1
		}
	}
	longest := slices.Max(matched)
	best := r.least(load, func(i int) bool { return matched[i] == longest })
	ahead := load[best] - load[least]
	if float64(longest) < leastShare*float64(len(chain)) ||
		ahead > mostAhead && float64(load[best]) > mostFactor*float64(load[least]) {
		return least
	}
	return best
}

// least returns the available replica with the smallest load among those for which ok is true; of several, a random
// one.
func (r *router) least(load []int, ok func(int) bool) int {
	var list []int
	for i, n := range load {
		if n < 0 || !ok(i) {
			continue
		}
		if len(list) > 0 && n > load[list[0]] {
			continue
		}
		if len(list) > 0 && n < load[list[0]] {
			list = list[:0]
		}
		list = append(list, i)
	}
	return list[r.draw.IntN(len(list))]
}

// chain returns a hash for every full page of a prompt, computed from the page and all pages before it.
func (r *router) chain(tenant string, prompt []int32) []uint64 {
	h := uint64(14695981039346656037)
	step := func(x uint64) { h = (h ^ x) * 1099511628211 }
	for _, b := range []byte(tenant) {
		step(uint64(b))
	}
	var out []uint64
	for i, t := range prompt {
		step(uint64(uint32(t)) + 1)
		if (i+1)%r.page == 0 {
			out = append(out, h)
		}
	}
	return out
}

// recent is a set of hashes with a maximum size, from which the least recently used hash is dropped.
type recent struct {
	capacity int
	age      map[uint64]int64
	order    []used
	clock    int64
}

type used struct {
	hash uint64
	age  int64
}

func newRecent(capacity int) *recent { return &recent{capacity: capacity, age: map[uint64]int64{}} }

func (s *recent) has(h uint64) bool {
	_, ok := s.age[h]
	return ok
}

func (s *recent) add(h uint64) {
	s.clock++
	s.age[h] = s.clock
	s.order = append(s.order, used{h, s.clock})
	for len(s.age) > s.capacity {
		first := s.order[0]
		s.order = s.order[1:]
		if s.age[first.hash] == first.age { // the hash was not used again
			delete(s.age, first.hash)
		}
	}
}
