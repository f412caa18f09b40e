package model

import (
	"sparrow/internal/model/config"
	"sparrow/internal/model/usage"
	"sparrow/kernel"
)

// Base is the part of a model that does not depend on its family.
type Base struct {
	Dev   kernel.Device
	Ranks kernel.Member
	List  *kernel.Builder
	Tally *Tally // nil unless chosen experts are counted

	config  *config.Config
	experts int // number of experts of a layer
}

// NewBase returns the base of a model with the given description and number of experts in a layer.
func NewBase(c *config.Config, experts int, dev kernel.Device, ranks kernel.Member) Base {
	return Base{Dev: dev, Ranks: ranks, List: kernel.NewBuilder(dev, ranks), config: c, experts: experts}
}

// Config returns the description of the model.
func (b *Base) Config() *config.Config { return b.config }

// Device returns the device on which the model runs.
func (b *Base) Device() kernel.Machine { return b.Dev }

// Place returns the current operation of the pass in progress.
func (b *Base) Place() string { return b.List.Place() }

// CountExperts enables counting of chosen experts in all passes that are arranged later.
func (b *Base) CountExperts() (err error) {
	b.Tally, err = NewTally(b.Dev, b.config.Layers+b.config.NextN, b.experts)
	return err
}

// ReadExperts adds the counts since the previous call to the table.
func (b *Base) ReadExperts(to *usage.Table) error { return b.Tally.Read(to) }
