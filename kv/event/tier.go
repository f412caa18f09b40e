package event

import (
	"sparrow/kv/prefix"
	"sparrow/kv/tier"
)

// Tiers takes the changes of the tiers behind the device, from any goroutine.
func (p *Publisher) Tiers() tier.Listener { return tiers{p.queue} }

type tiers struct{ queue *queue }

func (t tiers) Stored(m tier.Medium, s prefix.Stored) { t.of(m).Stored(s) }
func (t tiers) Removed(m tier.Medium, h prefix.Hash)  { t.of(m).Removed(h) }
func (t tiers) Cleared(m tier.Medium)                 { t.of(m).Cleared() }

func (t tiers) of(m tier.Medium) listener {
	if m == tier.CPU {
		return listener{t.queue, CPU}
	}
	return listener{t.queue, Storage}
}
