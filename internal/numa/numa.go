// Package numa finds the memory nodes of a machine, divides workers and rows of weights among them, and binds threads
// and new memory to a node. It reads a folder of the system and returns the processors of each worker.
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// ErrUnsupported is returned where the system does not report memory nodes.
var ErrUnsupported = errors.New("memory nodes are supported on Linux only")

// Node is a memory node and its processors that the process may use.
type Node struct {
	ID   int
	CPUs []int
}

// System has the operations of the operating system on the calling thread.
type System interface {
	// Bind lets it run on these processors only.
	Bind(cpus []int) error
	// Prefer makes new pages come from a node; a negative number restores the system's default.
	Prefer(node int) error
	// Thread identifies it.
	Thread() int
}

// Machine holds the nodes of a machine and its system.
type Machine struct {
	Nodes []Node
	System
}

// Several returns the machine on which the process runs, or nil if it has one memory node; then say is called with a
// message.
func Several(say func(text string)) (*Machine, error) {
	m, err := here()
	if err != nil {
		return nil, fmt.Errorf("numa: %w; start without --numa", err)
	}
	if len(m.Nodes) > 1 {
		return m, nil
	}
	if say != nil {
		say("this machine has one memory node for the processors of the process: --numa changes nothing")
	}
	return nil, nil
}

// folder is where the nodes are listed, below /sys.
const folder = "devices/system/node"

// Read lists the nodes with processors that are allowed, in ascending order. root is /sys.
func Read(root fs.FS, allowed func(cpu int) bool) ([]Node, error) {
	entries, err := fs.ReadDir(root, folder)
	if err != nil {
		return nil, fmt.Errorf("read the memory nodes: %w", err)
	}
	var out []Node
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "node")
		id, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		text, err := fs.ReadFile(root, folder+"/"+e.Name()+"/cpulist")
		if err != nil {
			return nil, fmt.Errorf("read the processors of memory node %d: %w", id, err)
		}
		cpus, err := parseList(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("processors of memory node %d: %w", id, err)
		}
		cpus = slices.DeleteFunc(cpus, func(cpu int) bool { return !allowed(cpu) })
		if len(cpus) > 0 { // a node may be memory alone
			out = append(out, Node{ID: id, CPUs: cpus})
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return a.ID - b.ID })
	return out, nil
}

// mostCPUs bounds the numbers of processors; Linux has fewer.
const mostCPUs = 1 << 16

// parseList reads a list such as "0-3,8". An empty one has no numbers.
func parseList(list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var out []int
	for _, part := range strings.Split(list, ",") {
		from, to, span := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if span && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last < first || last >= mostCPUs {
			return nil, fmt.Errorf("%q is not a list of processors", list)
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// Layout assigns workers to nodes: the workers of a node are consecutive, in proportion to its processors.
type Layout struct {
	*Machine
	workers int
	first   []int // the first worker of each node, and the number of all
}

// Divide returns a layout with the given number of workers.
func (m *Machine) Divide(workers int) *Layout {
	l := &Layout{Machine: m, workers: workers}
	all, before := 0, 0
	for _, n := range m.Nodes {
		all += len(n.CPUs)
	}
	for _, n := range m.Nodes {
		l.first = append(l.first, workers*before/all)
		before += len(n.CPUs)
	}
	l.first = append(l.first, workers)
	return l
}

// Count returns the number of nodes.
func (l *Layout) Count() int { return len(l.Nodes) }

// NodeOf returns the index of a worker's node in the list.
func (l *Layout) NodeOf(worker int) int {
	i := 0
	for worker >= l.first[i+1] {
		i++
	}
	return i
}

// rowsTogether divides where a node's rows begin, so that kernels take whole groups of rows.
const rowsTogether = 64

// Rows returns the range [first, end) of a weight's rows that the workers of a node read.
func (l *Layout) Rows(rows, node int) (first, end int) {
	at := func(i int) int {
		if i == len(l.first)-1 {
			return rows
		}
		return rows * l.first[i] / l.workers / rowsTogether * rowsTogether
	}
	return at(node), at(node + 1)
}

// BindWorker binds the calling thread to the processors of a worker's node.
func (l *Layout) BindWorker(worker int) error { return l.Bind(l.Nodes[l.NodeOf(worker)].CPUs) }

// String describes the layout in one line.
func (l *Layout) String() string {
	var parts []string
	for i, n := range l.Nodes {
		parts = append(parts, fmt.Sprintf("%d workers and their rows of weights on node %d", l.first[i+1]-l.first[i],
			n.ID))
	}
	return strings.Join(parts, ", ")
}
