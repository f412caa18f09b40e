// Package numa lists the memory nodes of a machine, divides workers and weight rows among them, and binds threads and
// new memory to a node. It reads the nodes from a folder of the system.
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// ErrUnsupported is returned if the system does not report memory nodes.
var ErrUnsupported = errors.New("memory nodes are supported on Linux only")

// Node is a memory node and those of its processors that the process may use.
type Node struct {
	ID   int
	CPUs []int
}

// System has the calls of the operating system that affect the calling thread.
type System interface {
	// Bind restricts the calling thread to these processors.
	Bind(cpus []int) error
	// Prefer sets the node from which new pages of the calling thread are allocated; a negative number restores the
	// system's default.
	Prefer(node int) error
	// Thread returns an identifier of the calling thread.
	Thread() int
}

// Machine holds the memory nodes of a machine and the calls of its system.
type Machine struct {
	Nodes []Node
	System
}

// Several returns the machine on which the process runs. If it has one memory node, Several returns nil and calls say
// with a message.
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

// folder lists the nodes, as a path below /sys.
const folder = "devices/system/node"

// Read lists the nodes that have allowed processors, in ascending order. root is the file system of /sys.
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
		if len(cpus) > 0 { // nodes without processors are skipped
			out = append(out, Node{ID: id, CPUs: cpus})
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return a.ID - b.ID })
	return out, nil
}

// mostCPUs is the maximum processor number that is accepted; Linux has fewer processors.
const mostCPUs = 1 << 16

// parseList parses a list such as "0-3,8". An empty list has no numbers.
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
			return nil, fmt.Errorf("%q is not a list of processors, want a list such as 0-3,8", list)
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// Layout assigns workers to nodes in proportion to the processors of each node. The workers of a node are consecutive.
type Layout struct {
	*Machine
	workers int
	first   []int // [nodes+1]: first worker of each node, then the number of workers
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

// NodeOf returns the index in Nodes of a worker's node.
func (l *Layout) NodeOf(worker int) int {
	i := 0
	for worker >= l.first[i+1] {
		i++
	}
	return i
}

// rowsTogether is the number of rows to a multiple of which the parts of nodes are rounded, so that kernels get whole
// groups of rows.
const rowsTogether = 64

// Rows returns the range [first, end) of weight rows that the workers of a node read.
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
