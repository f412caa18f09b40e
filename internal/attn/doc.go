// Package attn has the parts of attention that all model families use: a batch with its plan and page tables, the input
// block of a pass, and the indexer. Attention of each family is a sub-package: internal/attn/mla (DeepSeek-V3.2,
// GLM-5), internal/attn/dual (DeepSeek-V4) and internal/attn/hybrid (GLM-5.3-Flash).
//
// A pass has three stages. Arrange lays out its tensors on an arena; it depends only on the plan. Prepare fills the
// input block in host memory from the batch and its page tables; it does not use the device. Then the operations of the
// pass are listed, which also depends only on the plan. The plan determines the kernel, the cache layout and the index
// transform.
//
// Selections are stored as positions: several layers may share a selection, and recorded selections are read after the
// pass, when slots and gathered rows are no longer valid. Positions are converted to slots or gathered rows just before
// attention.
package attn
