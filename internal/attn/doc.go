// Package attn has the parts of attention that all families share: a planned batch with its page tables, the input
// block of a pass, and the indexer. The families are below it: internal/attn/mla (DeepSeek-V3.2, GLM-5) and
// internal/attn/dual (DeepSeek-V4).
//
// A pass has three stages. Arrange lays out its tensors on an arena; it depends only on the plan. Prepare fills the
// input block in host memory from the batch and its page tables; it does not use the device. Then its operations are
// listed, which also depends only on the plan. Which kernel reads which layout through which transform is read from
// the plan and never decided here.
//
// Selections are stored as positions: several layers may share a selection, and recorded selections are read after
// the pass, when slots and gathered rows are no longer valid. Positions are converted to slots or gathered rows just
// before attention.
package attn
