package numa

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// tree returns a /sys file system in which each node has the given list of processors.
func tree(lists map[string]string) fstest.MapFS {
	out := fstest.MapFS{folder + "/online": {Data: []byte("0-9\n")}, folder + "/has_cpu": {Data: []byte("0\n")}}
	for node, list := range lists {
		out[folder+"/"+node+"/cpulist"] = &fstest.MapFile{Data: []byte(list)}
	}
	return out
}

// The nodes are those that have processors which the process may use, in order of their numbers.
func TestNodesAreRead(t *testing.T) {
	sys := tree(map[string]string{"node0": "0-3,8-9\n", "node2": "\n", "node10": "12\n", "node3": "4-7\n"})
	got, err := Read(sys, func(cpu int) bool { return cpu != 1 && cpu != 8 })
	want := []Node{{0, []int{0, 2, 3, 9}}, {3, []int{4, 5, 6, 7}}, {10, []int{12}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("nodes %v, error %v, want %v", got, err, want)
	}
	got, err = Read(sys, func(cpu int) bool { return cpu >= 4 && cpu < 6 })
	if err != nil || len(got) != 1 {
		t.Errorf("nodes %v, error %v, want one of them", got, err)
	}
}

// A damaged /sys tree causes an error that names the node, and never a wrong list.
func TestDamagedTreesAreRefused(t *testing.T) {
	for _, list := range []string{"x", "3-1", "1-", "-1", "0-99999999999999999999", "0-70000", "1,,2"} {
		_, err := Read(tree(map[string]string{"node0": "0", "node1": list}), func(int) bool { return true })
		if err == nil || !strings.Contains(err.Error(), "memory node 1") {
			t.Errorf("%q: error %v", list, err)
		}
	}
	if _, err := Read(fstest.MapFS{}, func(int) bool { return true }); err == nil {
		t.Error("a tree without nodes was accepted, want an error")
	}
}

// Workers and rows are divided in proportion to the processors: every worker and every row has a node, and the rows
// that a worker reads are on its own node, except for rows in a group that is not divided.
func TestWorkersAndRowsAreDivided(t *testing.T) {
	m := &Machine{Nodes: []Node{{0, []int{0, 1, 2, 3}}, {1, []int{4, 5}}, {4, []int{6, 7}}}}
	for workers := 1; workers < 20; workers++ {
		l := m.Divide(workers)
		before := 0
		for w := range workers {
			n := l.NodeOf(w)
			if n < before || n >= l.Count() {
				t.Fatalf("%d workers: worker %d is on node %d behind %d", workers, w, n, before)
			}
			before = n
		}
		for _, rows := range []int{0, 1, 63, 64, 1000, 7168} {
			at := 0
			for n := range l.Count() {
				first, end := l.Rows(rows, n)
				if first != at || end < first {
					t.Fatalf("%d workers, %d rows: node %d has %d to %d behind %d", workers, rows, n, first, end, at)
				}
				at = end
			}
			if at != rows {
				t.Fatalf("%d workers: %d of %d rows belong to a node", workers, at, rows)
			}
		}
	}
	l := m.Divide(8)
	if first, end := l.Rows(1024, 1); first != 512 || end != 768 {
		t.Errorf("rows %d to %d belong to the second node, want 512 to 768", first, end)
	}
	want := "4 workers and their rows of weights on node 0, 2 workers and their rows of weights on node 1, " +
		"2 workers and their rows of weights on node 4"
	if l.String() != want {
		t.Errorf("the layout is described as %q", l)
	}
}

// recorded is a fake system that records the processors that threads are bound to.
type recorded struct{ bound [][]int }

func (r *recorded) Bind(cpus []int) error { r.bound = append(r.bound, cpus); return nil }
func (r *recorded) Prefer(int) error      { return nil }
func (r *recorded) Thread() int           { return 1 }

// Every worker is bound to the processors of its node.
func TestWorkersAreBoundToTheirNode(t *testing.T) {
	sys := &recorded{}
	m := &Machine{Nodes: []Node{{0, []int{0, 2}}, {1, []int{1, 3}}}, System: sys}
	l := m.Divide(4)
	for w := range 4 {
		if err := l.BindWorker(w); err != nil {
			t.Fatal(err)
		}
	}
	if want := [][]int{{0, 2}, {0, 2}, {1, 3}, {1, 3}}; !reflect.DeepEqual(sys.bound, want) {
		t.Errorf("bound to %v, want %v", sys.bound, want)
	}
}

// On the machine that runs the test, Several finds several nodes, or reports that there is one node, or returns an
// error that states what to do.
func TestOneNodeIsSaid(t *testing.T) {
	said := ""
	m, err := Several(func(text string) { said = text })
	switch {
	case err != nil:
		if !strings.Contains(err.Error(), "start without --numa") {
			t.Errorf("the error %q does not say what to do", err)
		}
	case m != nil && len(m.Nodes) < 2, m == nil && !strings.Contains(said, "one memory node"):
		t.Errorf("nodes %v, said %q", m, said)
	}
}
