package block

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sparrow/internal/testkit/archive"
)

// The grids, the signs and the tables equal those of the Python package gguf.
func TestGrids(t *testing.T) {
	dir := filepath.Join(archive.Unpack(t, "../../testdata/oracle/formats-1.tar.gz"), "formats-1", "gguf")
	data, err := os.ReadFile(filepath.Join(dir, "grids.bin"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "grids.json"))
	if err != nil {
		t.Fatal(err)
	}
	var places map[string]struct{ Offset, Entries, Elements int }
	if err := json.Unmarshal(text, &places); err != nil {
		t.Fatal(err)
	}
	octet := func(grid []octet) func(i, j int) int8 { return func(i, j int) int8 { return int8(grid[i] >> (8 * j)) } }
	quad := func(grid []quad) func(i, j int) int8 { return func(i, j int) int8 { return int8(grid[i] >> (8 * j)) } }
	for name, at := range map[string]func(i, j int) int8{
		"iq2_xxs": octet(octetsIQ2XXS), "iq2_xs": octet(octetsIQ2XS), "iq2_s": octet(octetsIQ2S),
		"iq3_xxs": quad(quadsIQ3XXS), "iq3_s": quad(quadsIQ3S),
		"iq1":        func(i, j int) int8 { return int8(octetsIQ1[i]>>(8*j)) / 8 },
		"signs":      func(i, _ int) int8 { return int8(signsOf(uint32(i))) },
		"iq4":        func(i, _ int) int8 { return int8(nonlinear[i]) },
		"e2m1_twice": func(i, _ int) int8 { return int8(twiceE2M1[i]) },
	} {
		p, ok := places[name]
		if !ok {
			t.Errorf("%s is not in grids.json", name)
		}
		for i := range p.Entries {
			for j := range p.Elements {
				if got, want := at(i, j), int8(data[p.Offset+i*p.Elements+j]); got != want {
					t.Fatalf("%s[%d][%d] is %d, want %d", name, i, j, got, want)
				}
			}
		}
	}
	if n := len(places); n != 9 {
		t.Errorf("grids.json has %d tables, this test compares 9", n)
	}
}
