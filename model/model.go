// Package model says what a model family offers and what one step of it needs.
//
// The families live in packages below this one (model/dsa, model/v4); model/family opens a checkpoint and picks the right one. Token ids, a plan and
// page tables flow in, logits flow out.
package model

import (
	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model/config"
	"sparrow/plan"
)

// Model is a loaded model with its cache. One goroutine uses it at a time.
type Model interface {
	// Config describes the model.
	Config() *config.Config
	// Facts is what the planner must know.
	Facts() plan.Model
	// Device is where the model runs.
	Device() kernel.Device
	// Allocate makes the cache: page pools in the resolved layouts, in place of what was there. Page contents are zero.
	Allocate(cfg *plan.Config, pages int) error
	// PageBytes is the cache memory one page takes in the resolved layouts, over all layers.
	PageBytes(cfg *plan.Config) int64
	// Forward runs one step and returns logits, f32 [len(in.Logits), vocabulary], in the order of in.Logits. The tensor is valid until the
	// next call.
	Forward(in Input) (kernel.Tensor, error)
	// Observe sets who is told of hidden states and selections; nil for nobody.
	Observe(Observer)
}

// Observer is told what passes through a model. Implementations read tensors before they return.
type Observer interface {
	attn.Observer
	// Begin is called once per step with the token of every row.
	Begin(rows attn.Rows) error
	// Hidden is called with the residual rows [T, hidden] after every layer.
	Hidden(layer int, h kernel.Tensor) error
}

// Input is one step.
type Input struct {
	attn.Step
	// Tokens holds, for each request of the batch, its new tokens.
	Tokens [][]int32
	// Logits lists the tokens whose logits are wanted.
	Logits []Pick
	// Windows holds, for each request of the batch, its window pages, one for each of its pages and negative where no row of the step looks.
	// A nil table means that they have the numbers of the pages. Models that are not Windowed ignore it.
	Windows [][]int32
	// States holds, for each request of the batch, the state of its sequence. Models that are not Stateful ignore it.
	States []State
}

// Pick names a new token of a request: its index among the request's new tokens.
type Pick struct{ Request, Token int }
