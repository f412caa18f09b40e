package estimate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"sparrow/internal/model/placement"
)

// split describes the experts of a model that are partly in host memory.
type split struct {
	ask       placement.Ask
	placement *placement.Placement
	ranks     float64
}

// share returns the fraction of rows that choose an expert.
func (s *split) share(layer, expert int) float64 {
	if s.ask.Usage != nil {
		return s.ask.Usage.Share(layer, expert)
	}
	return float64(s.ask.Chosen) / float64(s.ask.Layers[layer]) / s.ranks
}

// over counts the experts of a layer that have one of the methods for the rows of the batch: their number, the expected
// number that the batch's rows read, and the expected number that a row chooses.
func (p *parts) over(layer int, methods ...placement.Method) (count, read, used float64) {
	s := p.split
	for e, m := range s.placement.Layer(layer).Of(p.decodes == 0) {
		if slices.Contains(methods, m) {
			share := s.share(layer, e)
			count++
			read += 1 - math.Pow(1-share, p.rows)
			used += share
		}
	}
	return count * s.ranks, read * s.ranks, used * s.ranks
}

// onHost adds the time that the device waits for the experts of a layer in host memory: their time minus that of the
// device's work in parallel (beside). Fetched experts of prompts are copied during the previous layer; see stream.
func (p *parts) onHost(l int, beside float64) {
	s := p.split
	here := uses{beside: beside}
	text := []string{}
	if n, read, used := p.over(l, placement.Computed); read > 0 {
		here.computed, here.chosen = n, read/n
		cpu := &s.ask.CPU
		here.each = float64(s.ask.Bytes)/(cpu.Inside*cpu.Rate(s.ask.Format, p.rows*used/read)) + cpu.Dispatch
		here.start = cpu.Wait + s.ask.Bus.Wait + 2*p.rows*p.all.hidden*2/s.ask.Bus.Rate
		text = append(text, fmt.Sprintf("%.0f us to copy rows to the host and back, %.0f us for each expert that the "+
			"CPU computes, minus the time of the device's own work in parallel", here.start, here.each))
	}
	if n, read, _ := p.over(l, placement.Fetched); read > 0 && p.decodes > 0 {
		here.fetched, here.wanted = n, read/n
		here.copy = s.ask.TimesOf(1, false).Fetched / s.ranks
		text = append(text, fmt.Sprintf("%.0f us to copy each expert that is fetched", here.copy))
	}
	if len(text) > 0 {
		mean, known := p.means[here]
		if !known {
			mean = here.mean()
			p.means[here] = mean
		}
		p.add("experts of the host", mean, strings.Join(text, ", or ")+"; averaged over the number of "+
			"chosen experts of a layer")
	}
}

// stream adds the time that a prompt waits for copies of fetched experts: their time minus that of the layer that is
// computed in parallel.
func (p *parts) stream(l int, layer float64) {
	s := p.split
	if s == nil || p.decodes > 0 || p.all.layers[l] == 0 {
		return
	}
	_, read, _ := p.over(l, placement.Fetched)
	if read == 0 {
		return
	}
	copied := read / s.ranks * float64(s.ask.Bytes) / s.ask.Bus.Rate
	p.add("experts of the host", max(0, copied-layer), fmt.Sprintf("bytes of experts that are streamed / %.0f GB/s, "+
		"minus the time that the layer computes in parallel", s.ask.Bus.Rate/1e3))
}

// uses describes the use of a layer's experts in host memory in a step. computed is the number of experts that the CPU
// computes, chosen the probability that a given one is chosen, start the microseconds before the first expert, and each
// the microseconds for one expert. fetched, wanted and copy are the number, the probability and the microseconds for
// fetched experts. beside is the microseconds of the device's work in parallel.
type uses struct {
	computed, chosen, start, each float64
	fetched, wanted, copy         float64
	beside                        float64
}

// mean returns the microseconds by which the experts in host memory take longer than the device, averaged over the
// probabilities of the number of chosen experts. Fetched experts are copied one after another, after the resident
// experts; if none is chosen, nothing is launched.
func (u uses) mean() float64 {
	mean := 0.0
	for c := 0.0; c <= u.computed; c++ {
		cpu := 0.0
		if c > 0 {
			cpu = max(0, u.start+c*u.each-u.beside)
		}
		for f := 0.0; f <= u.fetched; f++ {
			mean += binomial(u.computed, c, u.chosen) * binomial(u.fetched, f, u.wanted) * max(cpu, f*u.copy)
		}
	}
	return mean
}

// binomial returns the probability of k successes in n trials, each of probability q.
func binomial(n, k, q float64) float64 {
	switch {
	case q <= 0 && k == 0, q >= 1 && k == n:
		return 1
	case q <= 0 || q >= 1:
		return 0
	}
	lg := func(x float64) float64 {
		v, _ := math.Lgamma(x + 1)
		return v
	}
	return math.Exp(lg(n) - lg(k) - lg(n-k) + k*math.Log(q) + (n-k)*math.Log1p(-q))
}
