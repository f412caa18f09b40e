package record

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawPositions returns at most most random numbers in ascending order.
func drawPositions(t *rapid.T, most int) []int32 {
	set := rapid.SliceOfNDistinct(rapid.Int32Range(0, 1<<20), 1, most, rapid.ID[int32]).Draw(t, "positions")
	slices.Sort(set)
	return set
}

func TestPositionsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, group := drawPositions(t, 40), rapid.SampledFrom([]int{1, 4, 128}).Draw(t, "group")
		text := AppendPositions(nil, append(slices.Clone(want), -1, -1), group)
		if n := CountPositions(text); n != len(want) {
			t.Fatalf("CountPositions returned %d, want %d", n, len(want))
		}
		end := int(want[len(want)-1])*group + 1
		got := make([]int32, len(want)+rapid.IntRange(0, 3).Draw(t, "room"))
		if err := Positions(got, text, group, end); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[:len(want)], want) || slices.ContainsFunc(got[len(want):], func(v int32) bool {
			return v != -1
		}) {
			t.Fatalf("%v was decoded as %v", want, got)
		}
		if Positions(got[:len(want)-1], text, group, end) == nil {
			t.Fatal("too many positions are accepted")
		}
		if Positions(got, text, group, end-1) == nil {
			t.Fatal("a position beyond the end is accepted")
		}
		// The length of the text stays below the bound by which requests are refused.
		if last := end / 128; len(text) > len(want)+last+end/16384+2 {
			t.Fatalf("%d positions below %d take %d bytes, which is above the bound", len(want), end, len(text))
		}
	})
}

// Any bytes decode to positions or to an error.
func FuzzPositions(f *testing.F) {
	f.Add([]byte{0, 5, 0x80, 1}, 4)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 1)
	f.Fuzz(func(t *testing.T, text []byte, group int) {
		to, g := make([]int32, 8), 1<<(uint(group)%8)
		if Positions(to, text, g, 1000) != nil {
			return
		}
		last := int32(-1)
		for i, p := range to {
			if p < 0 {
				if slices.Max(to[i:]) >= 0 {
					t.Fatalf("%v: %v", text, to)
				}
				break
			}
			if p <= last || int(p)*g >= 1000 {
				t.Fatalf("%v: %v", text, to)
			}
			last = p
		}
	})
}

func drawRows(t *rapid.T) *Rows {
	data := rapid.SliceOfN(rapid.Byte(), 1, 9)
	r := &Rows{Rows: []Row{}}
	for i := range rapid.IntRange(0, 3).Draw(t, "rows") {
		row := Row{Position: i}
		for l := range rapid.IntRange(0, 3).Draw(t, "layers") {
			x := Layer{Layer: l, Keys: i + 1, Group: rapid.SampledFrom([]int{0, 4}).Draw(t, "group"),
				Window: rapid.IntRange(0, 128).Draw(t, "window")}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				x.All = true
			case 1:
				x.As = &l
			case 2:
				x.Selected, x.Scores = data.Draw(t, "selected"), data.Draw(t, "scores")
				if rapid.Bool().Draw(t, "keeps") {
					x.Candidates, x.Block = data.Draw(t, "candidates"), rapid.IntRange(1, 8).Draw(t, "block")
				}
			}
			row.Layers = append(row.Layers, x)
			row.Experts = append(row.Experts, Experts{Layer: l, IDs: data.Draw(t, "ids"),
				Weights: data.Draw(t, "weights")})
		}
		r.Rows = append(r.Rows, row)
	}
	if rapid.Bool().Draw(t, "cached") {
		r.NotComputed = []Range{{0, 5}, {7, 9}}
	}
	return r
}

// seen sets drawn[name] for each structure field inside v to whether the field was not empty in any value so far.
func seen(drawn map[string]bool, v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			seen(drawn, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			drawn[name] = drawn[name] || !v.Field(i).IsZero()
			seen(drawn, v.Field(i))
		}
	}
}

// AppendJSON writes the same JSON as encoding/json, and the JSON can be read back. The random values set each field at
// least once.
func TestJSON(t *testing.T) {
	drawn := map[string]bool{}
	for _, kind := range []any{Rows{}, Row{}, Layer{}, Experts{}} {
		seen(drawn, reflect.ValueOf(kind))
	}
	rapid.Check(t, func(t *rapid.T) {
		want := drawRows(t)
		seen(drawn, reflect.ValueOf(*want))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		type plain Rows // has no AppendJSON method
		same, err := json.Marshal((*plain)(want))
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(text, &a) != nil || json.Unmarshal(same, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s\n%s", text, same)
		}
		var got Rows
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(&got, want) {
			t.Fatalf("error %v: %+v was decoded as %+v", err, want, got)
		}
	})
	for field, ok := range drawn {
		if !ok {
			t.Errorf("%s is empty in every draw", field)
		}
	}
}

func TestWith(t *testing.T) {
	var none *Rows
	a := &Rows{Rows: []Row{{Position: 1}}, NotComputed: []Range{{0, 1}}}
	b := &Rows{Rows: []Row{{Position: 2}}}
	if none.With(nil) != nil {
		t.Error("With of two nil values returned rows")
	}
	a.Rows = append(a.Rows, Row{Position: 7})[:1] // with memory for more rows, which belongs to a
	sum := none.With(a).With(nil).With(b)
	if len(sum.Rows) != 2 || len(sum.NotComputed) != 1 || len(a.Rows) != 1 || a.Rows[:2][1].Position != 7 {
		t.Errorf("the sum is %+v, the first operand is now %+v", sum, a.Rows[:2])
	}
}

// The decoders of docs/format/selections.md read the written format.
func TestDecodersInTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/format/selections.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(doc)
		if m == nil {
			t.Fatalf("the document has no decoder in %s", language)
		}
		return string(m[1])
	}
	one := 1
	chosen := []int32{0, 5, 300, 70000, 99999}
	rows := &Rows{Rows: []Row{{Position: 99999, Layers: []Layer{
		{Layer: 1, Keys: 100000, Selected: AppendPositions(nil, chosen, 1),
			Scores: AppendFloats(nil, []float32{1.5, -2, 0, 3, 1e30})},
		{Layer: 2, Keys: 100000, As: &one}, {Layer: 3, Keys: 10, Group: 4, All: true},
		{Layer: 4, Keys: 100, Group: 4, Window: 8, Selected: AppendPositions(nil, []int32{1, 3}, 4)}},
		Experts: []Experts{{Layer: 1, IDs: AppendIDs(nil, []int32{7, 256}),
			Weights: AppendFloats(nil, []float32{0.25, math.MaxFloat32})}}}}}
	text := string(rows.AppendJSON(nil))
	const want = `[[0,5,300,70000,99999],[0,5,300,70000,99999],[0,4],[4,12],[1.5,-2,0],[7,256]]`
	for _, c := range []struct{ program, script string }{
		{"python3", block("python") + "\nimport json, sys\nrow = json.loads(sys.argv[1])['rows'][0]\n" +
			"out = [positions(row, l) for l in (1, 2, 3, 4)]\nf = floats(row['layers'][0]['scores'])[:3]\n" +
			"out += [[int(v) if v == int(v) else v for v in f], experts(row['experts'][0]['ids'])]\n" +
			"print(json.dumps(out, separators=(',', ':')))"},
		{"node", block("js") + "\nconst row = JSON.parse(process.argv[1]).rows[0];\n" +
			"console.log(JSON.stringify([1, 2, 3, 4].map(l => positions(row, l)).concat(\n" +
			"[floats(row.layers[0].scores).slice(0, 3), experts(row.experts[0].ids)])));"},
	} {
		t.Run(c.program, func(t *testing.T) {
			path, err := exec.LookPath(c.program)
			if err != nil {
				t.Skipf("%s is not installed: its decoder is not tried", c.program)
			}
			option := map[string]string{"python3": "-c", "node": "-e"}[c.program]
			out, err := exec.Command(path, option, c.script, text).CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != want {
				t.Errorf("%v\n%s\nwant %s", err, out, want)
			}
		})
	}
}

// Weights that no router can produce are refused: they would make sums infinite.
func TestReplayedWeightsAreChecked(t *testing.T) {
	s := Shape{TopK: 4, Experts: 8, Chosen: 2, Layers: []LayerShape{{As: -1, Experts: true}}}
	for weight, ok := range map[float32]bool{0: true, 0.5: true, 2.5: true, maxWeight: true,
		maxWeight + 1: false, 3e38: false,
		-0.5: false, float32(math.Inf(1)): false, float32(math.NaN()): false} {
		rows := []Row{{Experts: []Experts{{IDs: AppendIDs(nil, []int32{1, 2}),
			Weights: AppendFloats(nil, []float32{0.5, weight})}}}}
		if _, err := NewReplay(rows, s); (err == nil) != ok {
			t.Errorf("weight %v: %v", weight, err)
		}
	}
}
