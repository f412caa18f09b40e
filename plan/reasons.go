package plan

import "fmt"

// Reasons that contain no numbers.
var (
	ReasonDenseRow   = Reason{"dispatch 5", "dense: no row attends to more keys than the threshold"}
	reasonDenseExact = Reason{"dispatch 5",
		"the threshold is at most index_topk, so a selection would hold every key anyway"}
	reasonDenseGather = Reason{"design 3",
		"every key is read in the format of the cache, so a prompt in chunks gives the same result as a whole one"}
	reasonDenseAboveK = Reason{"dispatch 5",
		"the threshold is above index_topk: dense rows with more than index_topk keys attend to more keys than in " +
			"training"}
	ReasonDecodePhase = Reason{"dispatch 2", "decode, verify and draft rows use the decode kernel"}
	ReasonRawToBlock  = Reason{"dispatch 9",
		"pages the batch refers to are rewritten from 576 to 656 bytes per token, exactly, by every launch of prompts"}
	ReasonDeterministic = Reason{"dispatch 5", "deterministic: splits are fixed and every row is computed with the " +
		"same arithmetic"}
	ReasonKOnly        = Reason{"dispatch 6", "indexer keys are stored; no row reads indices, so nothing is scored"}
	ReasonKOnlyIndices = Reason{"dispatch 6", "every visible key fits the selection, so it is written without scores"}
	reasonShort        = Reason{"dispatch 6",
		"short variant: no request of the segment has more keys than a selection holds, so all are selected without " +
			"scores"}
	ReasonRagged      = Reason{"dispatch 6", "index scores are computed over gathered index keys"}
	ReasonPagedSplit  = Reason{"dispatch 12", "scores over pages, each row separately"}
	ReasonPagedNative = Reason{"dispatch 12",
		"scores over pages; each block of keys is read once for all rows of a request"}
	reasonPagedGroups = Reason{"dispatch 12", "scores over pages; each block of keys is read once for groups of "}
	ReasonDraftSplit  = Reason{"dispatch 12", "draft rows are always scored one by one"}
	reasonStoresOnly  = Reason{"dispatch 6",
		"no logits are requested and no layer follows: rows and indexer keys are stored, and attention is not computed"}
	reasonEveryKey = Reason{"dispatch 3",
		"nothing is selected: the model has no indexer, so every row attends to all keys up to its position"}
	ReasonWindowOnly = Reason{"dispatch 13", "V4 draft layers attend to the window only"}
)

// ReasonDense states that the dense form computes the same result as the sparse form for rows with at most the given
// number of keys.
func ReasonDense(keys, topk int) Reason {
	if keys > topk {
		return reasonDenseAboveK
	}
	return reasonDenseExact
}

// Because adds a reason to a segment.
func (s *Segment) Because(r Reason) { s.Reasons = append(s.Reasons, r) }

// Reason is Because with a formatted text.
func (s *Segment) Reason(rule, format string, args ...any) {
	s.Because(Reason{rule, fmt.Sprintf(format, args...)})
}
