package plan

import "fmt"

// A pooled model (GLM-5.3-Flash) has two kinds of layers. Linear ones keep a state per sequence and read no rows of
// earlier tokens. The others are MLA without rotation whose indexer scores one key for each pool of four tokens: a row
// attends to the tokens of the K best complete pools, and to those behind the last complete pool.

// poolTokens is the number of tokens of a pool: index_kpool of every released model.
const poolTokens = 4

// LinearGrain is the chunk of positions that linear attention of prompts is cut at where it runs in chunks.
const LinearGrain = 64

// Pooled reports whether models of the family select pools of tokens.
func (f Family) Pooled() bool { return f == GLM5Next }

// Pooled reports whether the model selects pools of tokens.
func (m *Model) Pooled() bool { return m.Family.Pooled() }

// PoolTokens is the number of tokens of a pool that the model selects, 0 where it selects none.
func (m *Model) PoolTokens() int {
	if !m.Pooled() {
		return 0
	}
	return poolTokens
}

// LinearAt reports whether layer l has linear attention. Drafting layers have none.
func (m *Model) LinearAt(l int) bool { return l < len(m.Linear) && m.Linear[l] }

// PoolWidth is the number of tokens that a row of a pooled model attends to at most: those of K pools and of the open
// one.
func (m *Model) PoolWidth() int { return poolTokens*m.K + poolTokens - 1 }

// everyFourth marks the linear layers of the released pattern: all but every fourth.
func everyFourth(layers int) []bool {
	linear := make([]bool, layers)
	for i := range linear {
		linear[i] = i%4 != 3
	}
	return linear
}

// pooledInputs are the arrays of MLA over pools, and of linear attention.
func (w *Builder) pooledInputs() {
	n := gathered{light: w.closing(poolTokens)}
	w.eachLaunch(func(s *Segment, l *Launch, r launchReach) {
		if s.Indexer.Kind == IndexerRagged {
			l.Index = next(&n.groups, r.groups)
		}
	})
	w.pooledArrays(&n)
}

func (w *Builder) pooledArrays(n *gathered) {
	p := w.plan
	p.each(TokenIDs, Positions, RowRequests, Slots, Lengths, Groups, Kept, KeepRows)
	if p.Pass != PassTarget {
		p.each(HiddenRows)
	}
	p.array(PageTable, p.Requests, p.TablePages)
	p.array(GroupSlots, n.groups, 1)
	if n.groups > 0 {
		p.each(GroupStart)
	}
	p.array(CloseSources, n.light, poolTokens)
	p.array(CloseSlots, n.light, 1)
	if p.Pass == PassTarget {
		p.each(StateRows, Snapshots)
		p.array(StateSpans, p.Requests, StateSpanWords)
	}
}

// StateSpanWords are the words of a row of StateSpans: where the request's part of StateRows begins, how many rows it
// has, its slot of the states, -1 for none, and whether the state is empty.
const StateSpanWords = 4

// withoutDrafts refuses drafts of models that keep a state per sequence: a state cannot go back to where drafts were
// rejected.
func (r *resolver) withoutDrafts(n int) error {
	return &Error{Code: E11, Asked: fmt.Sprintf("%d drafts for %s, whose layers of linear attention keep a state that "+
		"cannot go back behind rejected drafts", n-1, r.model.Family),
		Supported: "decoding without drafts", Try: "no drafts"}
}
