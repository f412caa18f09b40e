// Package model defines the interfaces of a model family and of its forward passes.
//
// Families are sub-packages, such as internal/model/dsa and internal/model/v4; internal/model/family opens a checkpoint
// with the package of its family. The inputs of a pass are token ids, a plan and page tables; its outputs are logits.
package model

import (
	"sparrow/internal/attn"
	"sparrow/internal/model/config"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// Model is a loaded model with its cache. One goroutine uses it at a time.
type Model interface {
	// Config returns the description of the model.
	Config() *config.Config
	// Facts returns the properties that plans depend on.
	Facts() plan.Model
	// Device returns the device on which the model runs: one device, or several ranks.
	Device() kernel.Machine
	// Allocate makes the cache, page pools in the resolved layouts filled with zeros, and frees an existing cache.
	Allocate(cfg *plan.Config, pages int) error
	// PageBytes returns the size in bytes of one page in the resolved layouts, over all layers.
	PageBytes(cfg *plan.Config) int64
	// Bind allocates in an arena the tensors that outlive a pass: hidden states that a drafting pass reads. Passes have
	// at most the given number of rows.
	Bind(a *kernel.Arena, rows int) Workspace
}

// Workspace is the memory in which passes of a model run. Passes of one workspace run one after another. A pass of
// another workspace may run between two operations of a pass, over pages and states that the latter does not write.
type Workspace interface {
	// Arrange takes the tensors of a plan's pass from the workspace's arena, after those of Bind. Their addresses
	// depend only on the plan.
	Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (Pass, error)
}

// Pass is a pass of a model for one plan, with tensors in one arena. To run it, call Prepare, copy the input block to
// the device, and run its program. It can be used again for every batch of the same shape.
type Pass interface {
	// Inputs returns the tensor of the input block, i32 [1, words].
	Inputs() kernel.Tensor
	// Outputs returns the results.
	Outputs() *Outputs
	// Prepare checks a batch and fills the input block in host memory. It does not use the device.
	Prepare(in *Input, block []int32) error
	// Program returns the operations of the pass. It is built at the first call, and again after the address of the
	// cache, or of other memory that outlives passes, has changed.
	Program() (kernel.Program, error)
	// Ended is called after the program, or a captured graph of it, was enqueued; later passes may then read its
	// results on the device. An error means that it was not enqueued completely.
	Ended(error)
}

// Outputs are the results of a pass in the device's memory. They are adjacent in the arena, so that they are read with
// one copy.
type Outputs struct {
	// Block is the memory of all outputs: u8 [1, bytes].
	Block  kernel.Tensor
	Logits kernel.Tensor // f32 [plan.WholeLogits, vocabulary]
	Best   Best          // chosen token of every logit row; only if some are not returned whole, or in a block pass
	// Confidence is a block drafter's confidence in each drafted token, f32 [L, 1]: the logit of the probability that
	// the token is accepted, provided that all drafts before it are. Only in passes of plan.PassBlock.
	Confidence kernel.Tensor
	// Recorded are the recorded rows of each layer, if the plan records any.
	Recorded []Recorded
	// Rows are the rows of the pass that are recorded, i32 [R, 1].
	Rows kernel.Tensor
}

// Recorded is the record of one layer of a pass. Tensors that are not recorded, or that the layer does not have, are
// not given.
type Recorded struct {
	Hidden   kernel.Tensor // [R, width]: residual rows after the layer
	Selected kernel.Tensor // i32 [R, K]: keys that the layer's indexer selected
	Scores   kernel.Tensor // f32 [R, K]: indexer scores of these keys
	Blocks   kernel.Tensor // i32 [R, maximum blocks]: candidate blocks of keys that the layer selected
	Experts  kernel.Tensor // i32 [R, k]: chosen experts
	Weights  kernel.Tensor // f32 [R, k]: routing weights of these experts
}

// Best holds, for each logit row, the largest logit, f32 [L, 1]; its token, or the sampled token, i32 [L, 1]; and the
// log-sum-exp of all logits, f32 [L, 1].
type Best struct{ Values, IDs, LogSum kernel.Tensor }

// Input is one batch of a pass.
type Input struct {
	attn.Batch
	// Tokens holds the new tokens of each request of the batch. In a drafting pass these are the tokens after its rows:
	// the row of position t is computed from the target's hidden state at t and token t+1.
	Tokens [][]int32
	// Hidden is used in a drafting pass. For each new token of each request, it holds the row of the previous pass
	// whose hidden state is the input. The previous pass is one of the main layers or, in a chain, of the drafting
	// layer.
	Hidden [][]int32
	// Windows has, for each request of a pass of the target or of plan.PassBlock, a window page for each page of the
	// request; negative if no row of the pass attends to it. A nil table means that each window page has the number of
	// its page. Models that are not Windowed ignore it.
	Windows [][]int32
	// States holds, for each request of the batch, the state of its sequence. Models that are not Stateful ignore it.
	States []State
	// Before holds, for each request of the batch, the tokens before its new tokens: at least as many as
	// Remembering.Remembers returns, or all. Models that are not Remembering ignore it.
	Before [][]int32
	// Replays holds, for each request of the batch, the recorded choices of its replayed rows; nil if no row is
	// replayed.
	Replays []*record.Replay
}

// Drafter is a model whose family has drafting layers, of one of two kinds (plan.Model.Block).
//
// NextN is an additional decoder layer that predicts the token after the next, from the next token and the target's
// hidden state. Its rows and indexer keys are in the sequence's pages, like those of other layers; Allocate includes
// them when the configuration verifies more than one row per request. Plans of plan.PassDraft and plan.PassChain run
// it; a plan without logits only stores rows and indexer keys.
//
// DSpark consists of several stages that propose a block of tokens in one pass, plan.PassBlock. The stages read an
// entry for each token, which passes of the target store together with their window entries. Output rows of such a pass
// are ordered by their index in the block: the first rows of all requests come first.
type Drafter interface {
	// DraftHead returns nil if the checkpoint has drafting layers, otherwise an error that lists the missing tensors.
	DraftHead() error
}

// Remembering is a model whose rows depend on the ids of earlier tokens, not only on the cache, because it has n-gram
// tables.
type Remembering interface {
	// Remembers returns the number of earlier tokens that a row depends on.
	Remembers() int
}

// Tabled is a model with tables in host memory whose rows are looked up by token ids. Any goroutine may call Tables.
type Tabled interface{ Tables() TableUse }

// TableUse is the size of a model's tables and the amount read from them so far.
type TableUse struct{ Bytes, RowsRead, BytesRead int64 }

// SelfTester is a model that can compute attention from its weights in several forms and compare the results.
type SelfTester interface {
	// SelfTest returns an error that describes the difference. It needs no cache and frees its memory.
	SelfTest(cfg *plan.Config) error
}

// Placer is a model that reports the current operation of its passes.
type Placer interface {
	// Place returns the current operation of the pass in progress. It may be called from any goroutine.
	Place() string
}

// Paged is a model whose pages can be copied out of the cache and back. If all parts of a page are copied to another
// page, of this model or of one with the same weights and configuration, the other page has the same contents.
type Paged interface {
	// PageParts appends the tensors of a page: u8 [1, n] each, every layer's rows and indexer keys, including those
	// of the drafting layer. Their number and sizes depend only on the configuration.
	PageParts(parts []kernel.Tensor, page int) []kernel.Tensor
	// WindowParts appends the tensors of a window page, including raw rows and snapshots. A model that is not Windowed
	// appends none.
	WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor
}
