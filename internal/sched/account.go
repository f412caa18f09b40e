package sched

// account is an owner of sequences: a tenant, a flow of a tenant, or a request of a flow. No account keeps more places
// or pages than its siblings while sequences of the siblings wait.
type account struct {
	parent  *account
	key     any // key in the members of the parent
	running int // number of sequences that hold pages
	waiting int
	served  int64 // number of scheduled tokens of prompts and outputs
	turns   int   // number of sequences that a request has added
	begun   int   // number of prompts in progress, while the prompts of a batch are chosen
	chosen  int   // number of prompts in the batch that is being formed
	members map[any]*account
}

// member returns the account of a key, and makes it if it does not exist. A new account begins with the service of the
// least served sibling, so that idle time gives no credit.
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

// count changes the numbers of running and waiting sequences, up to the root. An account without sequences is removed.
func (p *account) count(running, waiting int) {
	for ; p != nil; p = p.parent {
		p.running += running
		p.waiting += waiting
		if p.running+p.waiting == 0 && p.parent != nil {
			delete(p.parent.members, p.key)
		}
	}
}

// serve adds tokens to the service of an account and its parents.
func (p *account) serve(tokens int) {
	for ; p != nil; p = p.parent {
		p.served += int64(tokens)
	}
}

// countPrompts counts the prompts in progress and the prompts in the batch.
func (p *account) countPrompts(begun, chosen int) {
	for ; p != nil; p = p.parent {
		p.begun += begun
		p.chosen += chosen
	}
}

// forgetPrompts resets the counts of countPrompts.
func (p *account) forgetPrompts() {
	for ; p != nil; p = p.parent {
		p.begun, p.chosen = 0, 0
	}
}
