package plan

import "reflect"

func sizeOf[T any]() int { return int(reflect.TypeFor[T]().Size()) }

var planSize, segmentSize, spanSize, launchSize = sizeOf[Plan](), sizeOf[Segment](), sizeOf[Span](), sizeOf[Launch]()
var reasonSize, rejectionSize, arraySize, shareSize = sizeOf[Reason](), sizeOf[Rejection](), sizeOf[Array](),
	sizeOf[Share]()

// Bytes returns the approximate memory of a plan. It includes the texts of the reasons, although many plans may share
// these texts.
func (p *Plan) Bytes() int {
	n := planSize + len(p.Shape.Ranks) + len(p.Shape.Lengths) + cap(p.Segments)*segmentSize + cap(p.Shares)*shareSize +
		8*(cap(p.RowBounds)+cap(p.DraftBounds)) + cap(p.Inputs)*arraySize + reasonBytes(p.Reasons)
	for i := range p.Segments {
		s := &p.Segments[i]
		n += cap(s.Spans)*spanSize + cap(s.Launches)*launchSize + len(s.Limit) + reasonBytes(s.Reasons) +
			cap(s.Rejected)*rejectionSize
		for j := range s.Rejected {
			n += len(s.Rejected[j].Reason)
		}
	}
	return n
}

func reasonBytes(list []Reason) int {
	n := cap(list) * reasonSize
	for i := range list {
		n += len(list[i].Rule) + len(list[i].Text)
	}
	return n
}
