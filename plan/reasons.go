package plan

import "fmt"

// Reasons that need no numbers, worded once.
var (
	reasonDenseRow   = Reason{"dispatch 5", "dense: no row sees more keys than the threshold"}
	reasonDenseExact = Reason{"dispatch 5",
		"the threshold is at most index_topk, so a selection would hold every key anyway"}
	reasonDenseGather = Reason{"design 3",
		"every key is read through the cache's representation, so chunked equals whole"}
	reasonDenseAboveK = Reason{"dispatch 5",
		"the threshold is above index_topk: rows between them attend to more keys than the model was trained with"}
	reasonDecodePhase = Reason{"dispatch 2", "decode, verify and draft rows use the decode kernel"}
	reasonRawToBlock  = Reason{"dispatch 9",
		"pages the batch refers to are rewritten from 576 to 656 bytes per token, exactly, once, in prefill"}
	reasonDeterministic = Reason{"dispatch 5", "deterministic: splits are fixed and every row has one arithmetic"}
	reasonKOnly         = Reason{"dispatch 6", "indexer keys are stored; nobody reads indices, so no scores"}
	reasonKOnlyIndices  = Reason{"dispatch 6", "every visible key fits the selection, so it is written without scores"}
	reasonShort         = Reason{"dispatch 6",
		"short variant: no request of the segment sees more than index_topk keys, so all are selected without scores"}
	reasonRagged      = Reason{"dispatch 6", "the selection needs scores over the gathered index keys"}
	reasonPagedSplit  = Reason{"dispatch 12", "scores over pages, each row on its own"}
	reasonPagedNative = Reason{"dispatch 12",
		"scores over pages, each block of keys read once for all rows of a request"}
	reasonPagedGroups = Reason{"dispatch 12", "scores over pages, each block of keys read once for groups of "}
	reasonDraftSplit  = Reason{"dispatch 12", "draft rows are always scored one by one"}
	reasonStoresOnly  = Reason{"dispatch 6",
		"no logits are wanted and no layer follows: rows and indexer keys are stored, nothing attends"}
	reasonWindowOnly = Reason{"dispatch 13", "V4 draft layers attend to the window only"}
	reasonUnclipped  = Reason{"dispatch 11", "the kernel takes unclipped lengths in plain decode"}
)

// because adds a reason to a segment.
func (s *Segment) because(r Reason) { s.Reasons = append(s.Reasons, r) }

// reason is because with a formatted text.
func (s *Segment) reason(rule, format string, args ...any) {
	s.because(Reason{rule, fmt.Sprintf(format, args...)})
}
