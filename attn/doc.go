// Package attn holds what the attention of every family shares: a planned batch with its page tables, the input block
// of a pass, and the indexer. The families are below it: attn/mla (DeepSeek-V3.2, GLM-5) and attn/dual (DeepSeek-V4).
//
// A pass has three stages. Arrange lays out its tensors on an arena; it depends on the plan alone. Prepare fills the
// input block in host memory from the batch and its page tables; it touches no device. Execute enqueues operations
// and reads no host data. Which kernel reads which layout through which transform is read from the plan and never
// decided here.
//
// Selections are kept as positions, because layers that share a selection and records of it outlive the places a
// batch gives to rows; they are turned into slots or gathered rows just before attention.
package attn
