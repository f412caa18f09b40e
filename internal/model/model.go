// Package model defines the interfaces of a model family and of its forward passes.
//
// The families are packages below this one (internal/model/dsa, internal/model/v4); internal/model/family opens a
// checkpoint and chooses its family. Token ids, a plan and page tables flow in, logits flow out.
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
	// Facts returns the properties that the planner reads.
	Facts() plan.Model
	// Device returns the device on which the model runs: one device, or several ranks.
	Device() kernel.Machine
	// Allocate makes the cache: page pools in the resolved layouts, instead of existing ones. Page contents are zero.
	Allocate(cfg *plan.Config, pages int) error
	// PageBytes returns the cache memory of one page in the resolved layouts, over all layers.
	PageBytes(cfg *plan.Config) int64
	// Bind allocates in an arena the tensors that outlive a pass: hidden states that a drafting pass continues.
	// Passes have at most the given number of rows.
	Bind(a *kernel.Arena, rows int) Workspace
}

// Workspace is the memory in which passes of a model run. Passes of one workspace run one after the other; a pass of
// another workspace may run between the operations of one, over pages and states that this one does not write.
type Workspace interface {
	// Arrange lays out the tensors of a plan's pass on the workspace's arena, after those of Bind. Their addresses
	// depend only on the plan.
	Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (Pass, error)
}

// Pass is one plan on one model, in the memory of one arena: first Prepare, then a copy of the input block, then
// its program. It can be used again for every batch of the same shape.
type Pass interface {
	// Inputs returns the tensor of the input block, i32 [1, words].
	Inputs() kernel.Tensor
	// Outputs returns the results.
	Outputs() *Outputs
	// Prepare checks a batch and fills the input block in host memory. It does not use the device.
	Prepare(in *Input, block []int32) error
	// Program returns the operations of the pass. It is built when it is first requested, and again if the address of
	// memory that outlives passes, such as the cache, has changed since.
	Program() (kernel.Program, error)
	// Ended is called once the program was enqueued, or a captured graph of it: later passes may then read its results
	// on the device. An error means that it was not enqueued, or only in part.
	Ended(error)
}

// Outputs are the results of a pass in the device's memory. They follow each other in one piece of the arena, which
// is read at once.
type Outputs struct {
	// Block is the memory of all outputs: u8 [1, bytes].
	Block  kernel.Tensor
	Logits kernel.Tensor // f32 [plan.WholeLogits, vocabulary]
	Best   Best          // best token of every logit row; only if some are not returned whole, or in a block pass
	// Confidence is the confidence of a block drafter in each of its tokens, f32 [L, 1]: the logit of the probability
	// that the token is accepted if the tokens before it are. Only in passes of plan.PassBlock.
	Confidence kernel.Tensor
	// Recorded are the recorded rows of each layer, if the plan records any.
	Recorded []Recorded
	// Rows are the rows of the pass that are recorded, i32 [R, 1].
	Rows kernel.Tensor
}

// Recorded is the record of one layer of a pass. Tensors that the pass does not record, or that do not apply to the
// layer, are not given.
type Recorded struct {
	Hidden   kernel.Tensor // [R, width]: residual rows after the layer
	Selected kernel.Tensor // i32 [R, K]: keys that the layer's indexer selected
	Scores   kernel.Tensor // f32 [R, K]: indexer scores of these keys
	Blocks   kernel.Tensor // i32 [R, maximum blocks]: blocks of keys that the layer keeps for later layers
	Experts  kernel.Tensor // i32 [R, k]: chosen experts
	Weights  kernel.Tensor // f32 [R, k]: routing weights of these experts
}

// Best has, for each row, the best logit f32 [L, 1], its token or the sampled token i32 [L, 1], and the logarithm of
// the sum of exponentials of all logits f32 [L, 1].
type Best struct{ Values, IDs, LogSum kernel.Tensor }

// Input is one batch of a pass.
type Input struct {
	attn.Batch
	// Tokens holds, for each request of the batch, its new tokens. In a drafting pass they are the tokens that follow
	// its rows: the row of position t is computed from the target's hidden state at t and token t+1.
	Tokens [][]int32
	// Hidden has, in a drafting pass, a row number for each new token of each request: the row of the previous pass
	// whose hidden state the token's row continues. The previous pass is one of the target or, in a chain, of the
	// drafting layer itself.
	Hidden [][]int32
	// Windows has, for each request of a pass of the target or of plan.PassBlock, a window page for each page of the
	// request; negative if no row of the pass attends to it. A nil table means that window pages have the numbers of
	// the pages. Models that are not Windowed ignore it.
	Windows [][]int32
	// States holds, for each request of the batch, the state of its sequence. Models that are not Stateful ignore it.
	States []State
	// Before has, for each request of the batch, the tokens before its new ones: at least as many as
	// Remembering.Remembers returns, or all of them. Models that are not Remembering ignore it.
	Before [][]int32
	// Replays has, for each request of the batch, the choices of its replayed rows; nil for none.
	Replays []*record.Replay
}

// Drafter is a model whose family has drafting layers, of one of two kinds (plan.Model.Block).
//
// NextN is one more decoder layer that predicts the token after the next from a token and the target's hidden state
// before it. Its rows and indexer keys are in the sequence's pages, like those of one more layer; Allocate includes
// them when the configuration verifies more than one row per request. Plans of plan.PassDraft and plan.PassChain run
// it; a plan without logits only stores rows and indexer keys.
//
// DSpark is several stages that propose a block of tokens in one pass, plan.PassBlock. Every pass of the target
// stores the data that they need for a token, a key for each stage, together with its window keys. Output rows of
// such a pass are ordered by their index in the block: the first rows of all requests come first.
type Drafter interface {
	// DraftHead returns nil if the checkpoint has the layer, and otherwise an error that lists the missing tensors.
	DraftHead() error
}

// Remembering is a model whose rows depend directly on tokens before their own, not only through the cache, such as
// rows of n-gram tables.
type Remembering interface {
	// Remembers returns the number of earlier tokens that a row depends on.
	Remembers() int
}

// Tabled is a model with tables in host memory whose rows are looked up by token. Tables may be called at any time.
type Tabled interface{ Tables() TableUse }

// TableUse is the size of a model's tables and the amount read from them so far.
type TableUse struct{ Bytes, RowsRead, BytesRead int64 }

// SelfTester is a model that can compare the forms of its attention on its own weights.
type SelfTester interface {
	// SelfTest returns an error that describes the difference. It needs no cache and frees its memory.
	SelfTest(cfg *plan.Config) error
}

// Placer is a model that reports which operation its passes are in.
type Placer interface {
	// Place returns the current operation of the pass in progress. It may be called from any goroutine.
	Place() string
}

// Paged is a model whose pages can leave the cache and return. If all parts of a page are copied away and later into
// another page, of this model or of one with the same weights and configuration, the other page has the same contents.
type Paged interface {
	// PageParts appends the tensors of a page: u8 [1, n] each, every layer's rows and indexer keys, including those
	// of the drafting layer. Their number and sizes depend only on the configuration.
	PageParts(parts []kernel.Tensor, page int) []kernel.Tensor
	// WindowParts appends the tensors of a window page, including the raw rows at its end. A model that is not
	// Windowed appends none.
	WindowParts(parts []kernel.Tensor, window int) []kernel.Tensor
}
