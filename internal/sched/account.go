package sched

// An account is an owner of sequences: a tenant, a flow of a tenant, or one request of a flow. While others of the same
// parent wait, none keeps more than they have.
type account struct {
	parent  *account
	key     any // in the table of the parent
	running int // sequences that hold pages
	waiting int
	served  int64 // tokens of prompts and outputs that were scheduled
	turns   int   // sequences that a request has added
	begun   int   // prompts under way, while those of a batch are chosen
	chosen  int   // of these, the ones in the batch
	members map[any]*account
}

// member finds or makes the account of a key. A new one begins with the service of the least served of the others: time
// without requests earns nothing.
func (p *account) member(key any) *account {
	if m := p.members[key]; m != nil {
		return m
	}
	m := &account{parent: p, key: key}
	first := true
	for _, other := range p.members {
		if first || other.served < m.served {
			m.served, first = other.served, false
		}
	}
	if p.members == nil {
		p.members = map[any]*account{}
	}
	p.members[key] = m
	return m
}

// count changes how many sequences run and wait, up to the root. An account without any is forgotten.
func (p *account) count(running, waiting int) {
	for ; p != nil; p = p.parent {
		p.running += running
		p.waiting += waiting
		if p.running+p.waiting == 0 && p.parent != nil {
			delete(p.parent.members, p.key)
		}
	}
}

// serve counts tokens.
func (p *account) serve(tokens int) {
	for ; p != nil; p = p.parent {
		p.served += int64(tokens)
	}
}

// countPrompts counts prompts that are under way and that are in the batch.
func (p *account) countPrompts(begun, chosen int) {
	for ; p != nil; p = p.parent {
		p.begun += begun
		p.chosen += chosen
	}
}

// forgetPrompts ends what countPrompts counts.
func (p *account) forgetPrompts() {
	for ; p != nil; p = p.parent {
		p.begun, p.chosen = 0, 0
	}
}
