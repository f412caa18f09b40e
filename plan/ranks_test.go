package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func divided(t *testing.T, family string, ranks int, how Division) Config {
	t.Helper()
	m, err := ModelFor(family)
	if err == nil {
		m, err = m.Divide(ranks, how)
	}
	if err != nil {
		t.Fatal(err)
	}
	hw, err := HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := Resolve(hw, m, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		together int // number of heads in a group that must stay together
		ranks    int
		how      Division
		want     Division
		heads    int
		padded   int
		says     string // part of the error message
	}{
		{0, 1, ByRequests, DivisionUnset, 6, 0, ""},
		{0, 2, DivisionUnset, ByHeads, 3, 0, ""},
		{0, 3, ByHeads, ByHeads, 2, 0, ""},
		{0, 3, ByRequests, ByRequests, 6, 0, ""},
		{0, 4, DivisionUnset, ByRequests, 6, 0, ""},
		{0, 4, ByHeads, ByHeads, 2, 2, ""},
		{0, 12, ByHeads, ByHeads, 1, 6, ""},
		{2, 3, DivisionUnset, ByHeads, 2, 0, ""},
		{2, 2, DivisionUnset, ByRequests, 6, 0, ""},
		{2, 2, ByHeads, ByHeads, 4, 2, ""},
		{2, 6, ByHeads, ByHeads, 2, 6, ""},
		{0, 5, DivisionUnset, 0, 0, 0,
			"heads or experts per rank do not fit; requested: 12 experts in equal parts on 5 ranks"},
		{0, 8, ByRequests, 0, 0, 0,
			"12 experts in equal parts on 8 ranks; supported: 1, 2, 3, 4, 6, 12 ranks; try 6 ranks"},
		{0, 0, DivisionUnset, 0, 0, 0, "on 0 ranks"},
	} {
		m := Model{Heads: 6, GroupHeads: c.together, Experts: ExpertFacts{Count: 12}}
		got, err := m.Divide(c.ranks, c.how)
		if c.says != "" {
			if !errors.Is(err, E08) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d ranks %v: %v", c.ranks, c.how, err)
			}
			continue
		}
		if err != nil || got.Division != c.want || got.Heads != c.heads || got.PaddedHeads != c.padded {
			t.Errorf("%d ranks %v: %d heads %v, %d of padding, %v", c.ranks, c.how, got.Heads, got.Division,
				got.PaddedHeads, err)
		}
	}
}

// The reasons of a configuration mention padded heads if and only if heads are padded.
func TestPaddedHeadsAreNamed(t *testing.T) {
	said := func(cfg Config) string {
		var all []string
		for _, r := range cfg.Reasons {
			all = append(all, r.Text)
		}
		return strings.Join(all, "\n")
	}
	for _, c := range []struct {
		family string
		ranks  int
		says   string
	}{
		{"deepseek_v32", 8, ""},
		{"glm-5", 128, "64 heads are padding, on the last ranks: the 64 of the model do not divide by 128"},
		{"deepseek_v4", 16, "64 heads are padding, on the last ranks: the 64 of the model, which stay together in " +
			"groups of 8, do not divide by 16"},
	} {
		text := said(divided(t, c.family, c.ranks, ByHeads))
		if named := strings.Contains(text, "padding"); named != (c.says != "") || !strings.Contains(text, c.says) {
			t.Errorf("%s on %d ranks: %s", c.family, c.ranks, text)
		}
	}
}

func TestParseDivision(t *testing.T) {
	for word, want := range map[string]Division{"auto": DivisionUnset, "TP": ByHeads, "dp": ByRequests} {
		if got, err := ParseDivision(word); err != nil || got != want {
			t.Errorf("%s: %v, %v", word, got, err)
		}
	}
	if _, err := ParseDivision("both"); err == nil || !strings.Contains(err.Error(), "tp, dp") {
		t.Errorf("both: %v", err)
	}
}

// If ranks share attention by requests, each rank has consecutive rows in its own segments, and a rank without requests
// has no rows.
func TestSharesByRequests(t *testing.T) {
	cfg := divided(t, "deepseek_v32", 4, ByRequests)
	on := func(rank int, r Request) Request {
		r.Rank = rank
		return r
	}
	b := Batch{}
	for _, r := range []Request{on(3, DecodeRequest(9000)), on(0, DecodeRequest(5)), on(0, ExtendRequest(7, 0)),
		on(3, DecodeRequest(12)), on(1, ExtendRequest(3, 4000))} {
		b.Add(r)
	}
	p, err := Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	want := []Share{{FirstRow: 0, Rows: 8}, {FirstRow: 8, Rows: 3}, {FirstRow: 11}, {FirstRow: 11, Rows: 2}}
	for i, s := range p.Shares {
		if s.FirstRow != want[i].FirstRow || s.Rows != want[i].Rows {
			t.Errorf("rank %d has %d rows from row %d on, want %+v", i, s.Rows, s.FirstRow, want[i])
		}
	}
	if !slices.Equal(p.RowBounds, []int{0, 8, 11, 11, 13}) {
		t.Errorf("bounds %v", p.RowBounds)
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		share := p.Share(s.Rank)
		if s.FirstRow < share.FirstRow || s.FirstRow+s.Rows > share.FirstRow+share.Rows {
			t.Errorf("segment %d of rank %d has rows %d to %d", i, s.Rank, s.FirstRow, s.FirstRow+s.Rows)
		}
		for _, sp := range s.Spans {
			if got := b.Requests[sp.Request].Rank; got != s.Rank {
				t.Errorf("segment %d of rank %d has request %d of rank %d", i, s.Rank, sp.Request, got)
			}
		}
	}
	// The same requests on other ranks have another shape, because their plans differ.
	first := p.Shape
	b.Requests[0].Rank = 1
	if p, err = Build(cfg, b); err != nil || p.Shape == first {
		t.Errorf("the same shape on another rank, %v", err)
	}
	b.Requests[0].Rank = 4
	if _, err := Build(cfg, b); !errors.Is(err, E26) || !strings.Contains(err.Error(), "rank 4 of 4") {
		t.Errorf("rank 4: %v", err)
	}
	heads := divided(t, "deepseek_v32", 4, ByHeads)
	b.Requests[0].Rank = 0
	if _, err := Build(heads, b); !errors.Is(err, E26) {
		t.Errorf("a rank where heads are divided: %v", err)
	}
	one := NewBatch(ModeDecode, DecodeRequest(3))
	if p, err = Build(heads, one); err != nil || p.Shares != nil || p.Share(2).Rows != 1 {
		t.Errorf("heads: shares %v, %v", p.Shares, err)
	}
}

// The groups of tokens that V4 completes, and the rows of its drafting block, are counted for each rank.
func TestSharesOfV4(t *testing.T) {
	cfg := divided(t, "deepseek_v4", 2, ByRequests)
	b := Batch{}
	for i, n := range []int{130, 9, 300} {
		r := ExtendRequest(n, 0)
		r.Rank = (i + 1) % 2
		b.Add(r)
	}
	p, err := Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Shares[0]; got.Light != (Run{0, 2}) || got.Heavy != (Run{0, 0}) || got.Rows != 9 {
		t.Errorf("rank 0: %+v", got)
	}
	if got := p.Shares[1]; got.Light != (Run{2, 32 + 75}) || got.Heavy != (Run{0, 1 + 2}) || got.Rows != 430 {
		t.Errorf("rank 1: %+v", got)
	}
	var order []int
	_ = b.ByRank(&cfg, func(i int) error {
		order = append(order, i)
		return nil
	})
	if !slices.Equal(order, []int{1, 0, 2}) {
		t.Errorf("by rank: %v", order)
	}
}

// Ranks exchange their partial results, and an idle rank takes part in the exchanges.
func TestCollectives(t *testing.T) {
	for ranks, joined := range map[int]bool{1: false, 2: true} {
		s := newSetup(t, "cpu", heads(16))
		var err error
		if s.model, err = s.model.Divide(ranks, ByHeads); err != nil {
			t.Fatal(err)
		}
		cfg := s.resolve(t)
		want(t, "decode", build(t, cfg, decode(100)).Collectives, joined)
		want(t, "idle", build(t, cfg, Batch{Mode: ModeIdle}).Collectives, true)
	}
}
