package step

import (
	"fmt"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// GraphBytes is the maximum device memory of captured graphs if Limits.GraphBytes is 0.
const GraphBytes = 256 << 20

// Graphs holds the counters of a runner's captured graphs. All are zero on devices without graphs.
type Graphs struct {
	Captured int64 // passes that were captured
	Replayed int64 // passes that ran from a graph
	Failed   int64 // captures that failed; passes of these shapes run with plain launches
	Evicted  int64 // graphs that were evicted for other graphs
	Held     int   // number of graphs that are kept now
	Bytes    int64 // device memory of the kept graphs, in bytes
	Budget   int64 // maximum of Bytes
	Launches int   // number of kernels, copies and fills of the latest graph that ran
	// Failure is the error of the latest failed capture, or nil.
	Failure error
}

// graphs captures the passes of decode-like batches and launches them again. The second pass of a shape is captured;
// the first pass runs with plain launches, because many shapes occur only once.
type graphs struct {
	dev    kernel.Capturer // nil if the device does not support graphs
	passes map[*pass]bool  // passes that hold a graph
	clock  int64           // number of uses of graphs so far
	count  Graphs
}

// captured is the graph of a pass.
type captured struct {
	graph kernel.Graph
	used  int64 // value of clock at the latest use
	ran   bool  // the pass ran with plain launches before
	off   bool  // a capture failed, so the pass is not captured again
}

func newGraphs(dev kernel.Machine, budget int64) graphs {
	c, _ := dev.(kernel.Capturer)
	if budget == 0 {
		budget = GraphBytes
	}
	if c == nil || budget < 0 {
		return graphs{}
	}
	return graphs{dev: c, passes: map[*pass]bool{}, count: Graphs{Budget: budget}}
}

// enqueue enqueues the operations of a pass, from its graph if there is one.
func (g *graphs) enqueue(p *pass) error {
	c := &p.captured
	p.graph = plan.GraphNone
	switch {
	case g.dev == nil || c.off || !p.plan.Mode.DecodeLike():
		return p.run()
	// Memory that the graph uses has moved, such as the states of sequences when more are opened.
	case c.graph != nil && c.graph.Stale():
		if err := g.drop(p); err != nil {
			return err
		}
		c.ran = true
		return p.run()
	case c.graph == nil && !c.ran:
		c.ran = true
		return p.run()
	case c.graph == nil:
		p.graph = plan.GraphCapture
		if err := g.capture(p); err != nil {
			p.graph = plan.GraphNone
			c.off = true
			g.count.Failed++
			g.count.Failure = fmt.Errorf("step: a pass of %d rows runs with plain launches: %w", p.plan.Rows, err)
			return p.run()
		}
	}
	if p.graph == plan.GraphNone {
		p.graph = plan.GraphReplay
	}
	g.clock++
	c.used = g.clock
	g.count.Replayed++
	g.count.Launches = c.graph.Launches()
	return c.graph.Launch()
}

// capture captures a pass, and evicts the least recently used graphs until the new graph fits in the budget.
func (g *graphs) capture(p *pass) error {
	made, err := g.dev.Capture(p.run)
	if err != nil {
		return err
	}
	if made.Bytes() > g.count.Budget {
		err := fmt.Errorf("the graph takes %d bytes, but all graphs together may take %d", made.Bytes(), g.count.Budget)
		if failed := made.Close(); failed != nil {
			return failed
		}
		return err
	}
	for g.count.Bytes+made.Bytes() > g.count.Budget {
		if err := g.evict(); err != nil {
			return err
		}
	}
	p.captured.graph, g.passes[p] = made, true
	g.count.Captured++
	g.count.Held++
	g.count.Bytes += made.Bytes()
	return nil
}

// evict closes the least recently used graph.
func (g *graphs) evict() error {
	var oldest *pass
	for p := range g.passes {
		if oldest == nil || p.captured.used < oldest.captured.used {
			oldest = p
		}
	}
	g.count.Evicted++
	return g.drop(oldest)
}

// drop closes the graph of a pass. The driver keeps it until its enqueued launches have finished.
func (g *graphs) drop(p *pass) error {
	graph := p.captured.graph
	if graph == nil {
		return nil
	}
	delete(g.passes, p)
	g.count.Held--
	g.count.Bytes -= graph.Bytes()
	p.captured = captured{}
	return graph.Close()
}

// close closes every graph.
func (g *graphs) close() error {
	for p := range g.passes {
		if err := g.drop(p); err != nil {
			return err
		}
	}
	return nil
}

// bucket returns the number of requests that a batch is padded to, so that only few shapes occur: up to 8 requests the
// number itself, up to 64 the next multiple of 8, then the next multiple of 16. All padding rows are equal and choose
// the same experts, whose weights are read at most once more; this matters only with few rows.
func bucket(requests int) int {
	switch {
	case requests <= 8:
		return requests
	case requests <= 64:
		return (requests + 7) &^ 7
	}
	return (requests + 15) &^ 15
}

// pad adds empty requests, which read and write no keys, to a batch of equal decode-like requests, up to the next
// bucket. If ranks share attention by requests, all ranks get equal numbers of requests.
func (r *Runner) pad(s *side) {
	b, in := &s.batch, &s.input
	n := len(b.Requests)
	_, stateful := r.model.(model.Stateful)
	if stateful && !r.limits.PadStates || r.graphs.dev == nil || n == 0 || !b.Mode.DecodeLike() ||
		b.Record != (plan.Record{}) {
		return
	}
	like := b.Requests[0]
	rows := b.Rows(&r.cfg, 0)
	for i := range b.Requests {
		if q := &b.Requests[i]; b.Rows(&r.cfg, i) != rows || q.Logits != like.Logits || q.Best != like.Best {
			return
		}
	}
	ranks := 1
	if r.cfg.Model.ByRequests() {
		ranks = r.cfg.Model.Ranks
	}
	var counts [kernel.MaxRanks]int
	most := 0
	for i := range b.Requests {
		rank := b.Requests[i].Rank
		counts[rank]++
		most = max(most, counts[rank])
	}
	to := min(bucket(most), r.limits.Requests/ranks)
	if to < most || to*ranks*rows > r.limits.Rows {
		return
	}
	if len(r.padding) < rows {
		r.padding = make([]int32, rows)
	}
	for rank := range ranks {
		for range to - counts[rank] {
			b.Add(plan.Request{Kind: like.Kind, N: like.N, Logits: like.Logits, Best: like.Best, Padding: true,
				Rank: rank})
			in.Tokens = append(in.Tokens, r.padding[:rows])
			in.Tables = append(in.Tables, nil)
			in.States = append(in.States, nil)
			if b.Pass == plan.PassTarget || b.Pass == plan.PassBlock {
				in.Windows = append(in.Windows, nil)
			} else {
				in.Hidden = append(in.Hidden, r.padding[:rows])
			}
		}
	}
}
