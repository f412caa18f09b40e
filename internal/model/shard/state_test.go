package shard

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/attn"
	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// Every rank numbers its window pages from 0; pages that a sequence does not have are unchanged.
func TestWindowPagesOfARank(t *testing.T) {
	m := &windowed{ranks: ranks{windows: 4}}
	given := []int32{-1, 0, 3, 4, 9, 15}
	if got, want := m.local(given), []int32{-1, 0, 3, 0, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("pages %v, want %v", got, want)
	}
	if given[3] != 4 {
		t.Error("the caller's pages were changed")
	}
}

// piece is the state of one rank.
type piece struct {
	log  *[]string
	name string
	fail error
}

func (p *piece) note(what string)   { *p.log = append(*p.log, what+" "+p.name) }
func (p *piece) Len() int           { return 7 }
func (p *piece) Truncate(int) error { p.note("truncate"); return p.fail }
func (p *piece) Release()           { p.note("release") }

func (p *piece) Clone() (model.State, error) {
	if p.fail != nil {
		return nil, p.fail
	}
	p.note("clone")
	return &piece{log: p.log, name: p.name + "'"}, nil
}

// The states of a sequence change together. If one rank returns an error, the other ranks are still truncated, and
// states that were made before an error are released.
func TestStatesOfAllRanksChangeTogether(t *testing.T) {
	fault := errors.New("fault")
	for _, failing := range []int{-1, 0, 1, 2} {
		var log []string
		s := &state{}
		for i, name := range []string{"a", "b", "c"} {
			p := &piece{log: &log, name: name}
			if i == failing {
				p.fail = fault
			}
			s.parts = append(s.parts, p)
		}
		check := func(what string, err error, want ...string) {
			t.Helper()
			if errors.Is(err, fault) != (failing >= 0) || !slices.Equal(log, want) {
				t.Errorf("rank %d fails: %s: %v, %v; want %v", failing, what, log, err, want)
			}
			log = nil
		}
		check("truncate", s.Truncate(3), "truncate a", "truncate b", "truncate c")
		_, err := s.Clone()
		switch failing {
		case -1:
			check("clone", err, "clone a", "clone b", "clone c")
		case 0:
			check("clone", err)
		case 1:
			check("clone", err, "clone a", "release a'")
		case 2:
			check("clone", err, "clone a", "clone b", "release a'", "release b'")
		}
		m := &windowed{ranks: ranks{parts: make([]part, 3)}}
		_, err = m.made(func(r int) (model.State, error) {
			p := s.parts[r].(*piece)
			return p, p.fail
		})
		check("make", err, []string{"release a", "release b", "release c"}[:max(failing, 0)]...)
		if s.Len() != 7 {
			t.Errorf("%d tokens", s.Len())
		}
		if s.Release(); !slices.Equal(log, []string{"release a", "release b", "release c"}) || s.parts != nil {
			t.Errorf("released %v", log)
		}
	}
}

// built is a pass of one rank whose program cannot be built if err is set.
type built struct {
	model.Pass
	err error
}

func (b built) Program() (kernel.Program, error) { return nil, b.err }

// If the program of a rank cannot be built, the error names the rank.
func TestARankWithoutAProgram(t *testing.T) {
	fault := errors.New("fault")
	for failing, want := range []string{"rank 0 of 3: fault", "rank 1 of 3: fault", "rank 2 of 3: fault"} {
		p := &pass{programs: make([]kernel.Program, 3)}
		for i := range 3 {
			var b built
			if i == failing {
				b.err = fault
			}
			p.parts = append(p.parts, b)
		}
		if _, err := p.Program(); !errors.Is(err, fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// prepared is a pass of one rank that fills the input block with a word.
type prepared struct {
	model.Pass
	word int32
}

func (p prepared) Prepare(_ *model.Input, words []int32) error {
	words[1] = p.word
	return nil
}

// All ranks fill the input block with the same words; if a rank differs, the error names it.
func TestRanksThatFillOtherBlocks(t *testing.T) {
	in := &model.Input{Batch: attn.Batch{Config: &plan.Config{}}}
	for _, c := range []struct {
		words []int32
		says  string
	}{{[]int32{5, 5, 5}, ""}, {[]int32{5, 5, 6}, "rank 2 differs"}, {[]int32{5, 6, 5}, "rank 1 differs"}} {
		p := &pass{m: &ranks{}, block: make([]int32, 4)}
		for _, w := range c.words {
			p.parts = append(p.parts, prepared{word: w})
		}
		err := p.Prepare(in, []int32{1, 2, 3})
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, kernel.ErrLost) ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("words %v: %v, want %q", c.words, err, c.says)
		}
	}
}
