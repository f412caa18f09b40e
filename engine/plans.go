package engine

import "slices"

// maxPlanBytes limits the memory of the plans that are kept for inspection: a plan of a batch with many prompts takes
// some hundred kilobytes.
const maxPlanBytes = 16 << 20

// planRing holds the latest plans, limited in number and to maxPlanBytes in size. The latest plan is always kept.
type planRing struct {
	most  int
	list  []PlanRecord
	first int // index of the oldest plan
	count int
	bytes int
}

func (k *planRing) add(r PlanRecord) {
	if k.most < 1 {
		return
	}
	n := r.Plan.Bytes()
	for k.count > 0 && (k.count == k.most || k.bytes+n > maxPlanBytes) {
		oldest := &k.list[k.first]
		k.bytes -= oldest.Plan.Bytes()
		*oldest = PlanRecord{}
		k.first, k.count = (k.first+1)%len(k.list), k.count-1
	}
	if k.count == len(k.list) {
		longer := make([]PlanRecord, min(max(2*k.count, 16), k.most))
		copy(longer, k.all())
		k.list, k.first = longer, 0
	}
	k.list[(k.first+k.count)%len(k.list)] = r
	k.count++
	k.bytes += n
}

// all returns the kept plans, oldest first.
func (k *planRing) all() []PlanRecord {
	end := k.first + k.count
	if end <= len(k.list) {
		return slices.Clone(k.list[k.first:end])
	}
	return slices.Concat(k.list[k.first:], k.list[:end-len(k.list)])
}
