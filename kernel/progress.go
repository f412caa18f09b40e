package kernel

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Mark is a place in a pass: an operation of a stage of a layer. Only the queue that made it can read it.
type Mark uint32

// MarkReplay is the place of a captured pass, whose operations are not marked: a mark takes longer than the gap between
// two of its operations.
const MarkReplay Mark = 1<<32 - 1

// Stage is the mark without its operation: the stage as a whole.
func (m Mark) Stage() Mark { return m &^ 0xFF }

// Operation is the name of the mark's operation.
func (m Mark) Operation() string { return operation(m & 0xFF).String() }

// Marker is a device that notes how far it has come. Its operations run later than they are enqueued, so what was
// enqueued last does not say where a device hangs.
type Marker interface {
	// Mark enqueues a note that everything before it has run and that the place begins. A device may note stages
	// alone, where a note for each operation would take time.
	Mark(Mark) error
	// Reached is the latest place that began, 0 before the first. It may be called from any goroutine, also while
	// the device does not answer.
	Reached() Mark
}

// operation is one of the queue's operations.
type operation uint8

const (
	_ operation = iota
	opEmbed
	opNorm
	opMultiply
	opProject
	opTake
	opAngles
	opRotate
	opAbsorb
	opExpand
	opStoreRows
	opGatherRows
	opStoreIndex
	opGatherIndex
	opConvertPages
	opIndexQuery
	opScores
	opSelect
	opLocate
	opSparseAttend
	opDenseAttend
	opGate
	opRoute
	opExperts
	opHyperPre
	opHyperPost
	opHyperHead
	opHeadNorm
	opCompress
	opPut
	opStoreEntries
	opStoreKeys
	opDualAttend
	opFlatAttend
	opUnpack
	opCombine
	opRouteRoot
	opRouteHash
	opCopy
	opCandidates
	opSample
	opAllReduce
	opAllGather
	opTally
	opShareRows
)

var operationNames = [...]string{
	opEmbed:        "embed",
	opNorm:         "norm",
	opMultiply:     "multiply",
	opProject:      "project",
	opTake:         "take",
	opAngles:       "angles",
	opRotate:       "rotate",
	opAbsorb:       "absorb",
	opExpand:       "expand",
	opStoreRows:    "store rows",
	opGatherRows:   "gather rows",
	opStoreIndex:   "store index",
	opGatherIndex:  "gather index",
	opConvertPages: "convert pages",
	opIndexQuery:   "index query",
	opScores:       "scores",
	opSelect:       "select",
	opLocate:       "locate",
	opSparseAttend: "sparse attend",
	opDenseAttend:  "dense attend",
	opGate:         "gate",
	opRoute:        "route",
	opExperts:      "experts",
	opHyperPre:     "hyper pre",
	opHyperPost:    "hyper post",
	opHyperHead:    "hyper head",
	opHeadNorm:     "head norm",
	opCompress:     "compress",
	opPut:          "put",
	opStoreEntries: "store entries",
	opStoreKeys:    "store keys",
	opDualAttend:   "dual attend",
	opFlatAttend:   "flat attend",
	opUnpack:       "unpack",
	opCombine:      "combine",
	opRouteRoot:    "route root",
	opRouteHash:    "route hash",
	opCopy:         "copy",
	opCandidates:   "candidates",
	opSample:       "sample",
	opAllReduce:    "all-reduce",
	opAllGather:    "all-gather",
	opTally:        "tally",
	opShareRows:    "share of rows",
}

func (o operation) String() string {
	if int(o) < len(operationNames) && operationNames[o] != "" {
		return operationNames[o]
	}
	return "no operation"
}

// progress is the place that is enqueued. One goroutine writes it and any may read it.
type progress struct {
	now    atomic.Uint32 // a Mark
	stage  uint32        // bits of the present stage and layer
	mu     sync.Mutex    // guards stages
	stages []string      // names, by number less one
	// seen are the operations of each stage so far, a bit for each.
	seen [maxStages]atomic.Uint64
}

// maxStages bounds the names of stages; models have about ten.
const maxStages = 32

// A mark has the operation in its low 8 bits, then 8 bits for the number of the stage and 16 for the layer, counted
// from 1; 0 is none.
func (p *progress) at(stage string, layer int) {
	n := 0
	for n < len(p.stages) && p.stages[n] != stage {
		n++
	}
	if n == maxStages {
		n-- // several stages have the last name
	} else if n == len(p.stages) {
		p.mu.Lock()
		p.stages = append(p.stages, stage)
		p.mu.Unlock()
	}
	p.stage = uint32(n+1)<<8 | uint32(layer+1)<<16
	p.now.Store(p.stage)
}

func (p *progress) next(op operation) Mark {
	at := p.stage | uint32(op)
	p.now.Store(at)
	if seen := &p.seen[(max(at>>8&0xFF, 1)-1)%maxStages]; seen.Load()>>op&1 == 0 {
		seen.Or(1 << op)
	}
	return Mark(at)
}

// text describes a place: "norm in attention of layer 3", or of a stage as a whole "attention of layer 3, one of norm,
// project".
func (p *progress) text(m Mark) string {
	if m == MarkReplay {
		return "a captured pass, whose operations are not noted (--no-graphs runs passes without capturing them)"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	op, stage, layer := operation(m&0xFF), int(m>>8&0xFF), int(m>>16)
	if stage < 1 || stage > len(p.stages) {
		return op.String()
	}
	where := p.stages[stage-1]
	if layer > 0 {
		where += fmt.Sprintf(" of layer %d", layer-1)
	}
	if op != 0 {
		return op.String() + " in " + where
	}
	var list []string
	for o := range operation(len(operationNames)) {
		if p.seen[stage-1].Load()>>o&1 != 0 {
			list = append(list, o.String())
		}
	}
	return where + ", one of " + strings.Join(list, ", ")
}

// Place says, from any goroutine, how far a pass has come: the operation that was enqueued last, and where the device
// notes how far it is, the one that it began last.
func (q *Queue) Place() string {
	last := "enqueued last: " + q.place.text(Mark(q.place.now.Load()))
	if q.mark == nil {
		return last
	}
	return fmt.Sprintf("the device is in %s; %s", q.place.text(q.mark.Reached()), last)
}
