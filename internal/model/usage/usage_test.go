package usage

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sparrow/internal/model/config"
)

// example has experts in layers 1 and 2 of 3, which are chosen unevenly in layer 1 and not at all in layer 2.
func example() *Table {
	t := New("deepseek_v4", 3, 4, 2)
	t.Add(1, []uint64{6, 0, 1, 3})
	t.Add(2, make([]uint64, 4))
	return t
}

func TestShares(t *testing.T) {
	u := example()
	if n := u.Choices(1); n != 10 {
		t.Errorf("%v choices", n)
	}
	for e, want := range []float64{2 * 7. / 14, 2 * 1. / 14, 2 * 2. / 14, 2 * 4. / 14} {
		if got := u.Share(1, e); got != want {
			t.Errorf("expert %d: %v, want %v", e, got, want)
		}
		if got := u.Share(2, e); got != 0.5 {
			t.Errorf("an expert of a layer without counts: %v, want the share of an even choice", got)
		}
		if got := u.Share(0, e); got != 0.5 {
			t.Errorf("a layer that was not counted: %v", got)
		}
	}
	if u.Top(1, 1) != 0.6 || u.Top(1, 2) != 0.9 || u.Top(1, 9) != 1 || u.Top(2, 1) != 0 {
		t.Errorf("top %v %v %v %v", u.Top(1, 1), u.Top(1, 2), u.Top(1, 9), u.Top(2, 1))
	}
	// A share always includes at least one expert.
	for share, want := range map[float64]float64{0.5: 0.9, 0.1: 0.6, 0.25: 0.6, 0.26: 0.9, 1: 1} {
		if m := u.MeanTop(share); m != want {
			t.Errorf("%v of the experts have %v of the choices in the mean over layers with choices, want %v", share, m,
				want)
		}
	}
	if m := New("x", 2, 4, 2).MeanTop(0.5); m != 0 {
		t.Errorf("without counts %v", m)
	}
	u.Add(1, []uint64{math.MaxUint64, 0, 0, 0})
	if u.Counts[1][0] != math.MaxUint64 {
		t.Errorf("a count overflowed to %d", u.Counts[1][0])
	}
}

func TestMerge(t *testing.T) {
	a, b := example(), example()
	if err := a.Merge(b); err != nil || a.Counts[1][0] != 12 || b.Counts[1][0] != 6 {
		t.Errorf("%v, %v, %v", a, b, err)
	}
	for _, o := range []*Table{New("glm_moe_dsa", 3, 4, 2), New("deepseek_v4", 2, 4, 2), New("deepseek_v4", 3, 8, 2),
		New("deepseek_v4", 3, 4, 1)} {
		if err := a.Merge(o); err == nil || !strings.Contains(err.Error(), "saved for this model") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	c := a.Clone()
	c.Add(1, []uint64{1, 0, 0, 0})
	if a.Counts[1][0] != 12 {
		t.Error("a clone shares its counts")
	}
}

func TestFileKeepsTheTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.json")
	u := example()
	for range 2 { // the second write replaces the file of the first
		if err := u.Save(path); err != nil {
			t.Fatal(err)
		}
		got, err := Load(path)
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Fatalf("%+v, %v, want %+v", got, err, u)
		}
		u.Add(2, []uint64{1, 2, 3, 4})
	}
	if names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(names) != 1 {
		t.Errorf("files %v, %v", names, err)
	}
	if err := u.Save(filepath.Join(path, "x")); err == nil {
		t.Error("a file below a file was saved")
	}
	if _, err := Load(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// bad returns files that must be refused, with the expected message. HEAD stands for the beginning of a valid file.
func bad() map[string]string {
	out := map[string]string{}
	for text, want := range map[string]string{
		"":                   "EOF",
		"null":               `format is ""`,
		"[1]":                "cannot unmarshal",
		`{"format":"other"}`: `format is "other"`,
		`{"format":"sparrow expert usage","version":2}`:                                        "version is 2",
		`HEAD,"layers":1000000000,"experts":8,"chosen":1}`:                                     "layers",
		`HEAD,"layers":3,"experts":1000000000,"chosen":1}`:                                     "experts",
		`HEAD,"layers":3,"experts":8,"chosen":9}`:                                              "9 of 8",
		`HEAD,"layers":-3,"experts":8,"chosen":1}`:                                             "-3 layers",
		`HEAD,"layers":3,"experts":2,"chosen":1,"more":1}`:                                     "unknown field",
		`HEAD,"layers":3,"experts":2,"chosen":1,"counts":[]} {}`:                               "text follows",
		`HEAD,"layers":3,"experts":2,"chosen":1,"counts":[{"layer":3}]}`:                       "layer 3, but the file",
		`HEAD,"layers":3,"experts":2,"chosen":1,"counts":[{"counts":[1]}]}`:                    "1 counts",
		`HEAD,"layers":3,"experts":2,"chosen":1,"counts":[{"counts":[1,-1]}]}`:                 "cannot unmarshal",
		`HEAD,"layers":3,"experts":2,"chosen":1,"counts":[{"counts":[1,2]},{"counts":[1,2]}]}`: "twice",
	} {
		out[strings.Replace(text, "HEAD", `{"format":"sparrow expert usage","version":1`, 1)] = want
	}
	return out
}

func TestHostileFilesAreRefused(t *testing.T) {
	for text, want := range bad() {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	const head = `{"format":"sparrow expert usage","version":1,`
	const three = head + `"layers":3,"experts":2,"chosen":1,"counts":`
	most := fmt.Sprintf("want at most %d experts and %d layers", mostExperts, mostLayers)
	for text, want := range map[string]string{
		`{"format":"x"}`: `format is "x", want "sparrow expert usage"`,
		`{"format":"sparrow expert usage","version":2}`: "the version is 2, want 1",
		head + `"layers":0,"experts":2,"chosen":1}`:     "the file has 1 of 2 experts in 0 layers, " + most,
		head + `"layers":1,"experts":2,"chosen":0}`:     "the file has 0 of 2 experts in 1 layers, " + most,
		three + `[{"layer":3}]}`:                        "there are counts of layer 3, but the file has 3 layers",
		three + `[{"layer":2,"counts":[7]}]}`: "there are 1 counts of layer 2, want one for each of 2 " +
			"experts",
		three + `[{"layer":1,"counts":[1,2]},{"layer":1,"counts":[1,2]}]}`: "the counts of layer 1 occur twice; " +
			"want each layer once",
		three + `[]} x`: "text follows the JSON object; want a single object",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || err.Error() != ErrFile.Error()+": "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Read(strings.NewReader(strings.Repeat(" ", mostBytes+1))); !errors.Is(err, ErrFile) {
		t.Errorf("a file that is too long: %v", err)
	}
}

// Every file is refused, or gives the same table when it is written and read again.
func FuzzRead(f *testing.F) {
	for text := range bad() {
		f.Add(text)
	}
	var good bytes.Buffer
	if err := example().Write(&good); err != nil {
		f.Fatal(err)
	}
	f.Add(good.String())
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := u.Write(&again); err != nil {
			t.Fatal(err)
		}
		if v, err := Read(&again); err != nil || !reflect.DeepEqual(u, v) {
			t.Fatalf("%+v became %+v, %v", u, v, err)
		}
	})
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	if err := example().Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `deepseek_v4: 3 layers, 2 of 4 experts chosen by a row; 10 choices counted

  layer  choices  never chosen  top 10 %  top 25 %  top 50 %  most chosen
      1       10             1    60.0 %    60.0 %    90.0 %        0 3 2
      2        0             4     0.0 %     0.0 %     0.0 %        0 1 2
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if err := example().Print(failing{}); !errors.Is(err, errFull) {
		t.Errorf("writing to a full disk: %v", err)
	}
}

var errFull = errors.New("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

// Only layers with more choices than the mean fade, and a table is made for a model with experts.
func TestTablesOfModels(t *testing.T) {
	u := New("x", 3, 4, 2)
	u.Add(0, []uint64{4, 4, 0, 0})
	u.Add(1, []uint64{9, 1, 0, 2})
	u.Fade(2) // layer 0 has exactly two choices per expert
	if fmt.Sprint(u.Counts) != "[[4 4 0 0] [4 0 0 1] []]" {
		t.Errorf("faded to %v", u.Counts)
	}
	c := config.Config{Family: "f", Layers: 5, NextN: 2}
	moe, v4 := config.FFN{Experts: 6, TopK: 3}, config.V4FFN{Experts: 6, TopK: 3}
	for _, d := range []config.Description{&config.DSA{Config: c, FFN: moe}, &config.V4{Config: c, FFN: v4},
		&config.Next{Config: c, FFN: moe}, &config.V41{V4: config.V4{Config: c, FFN: v4}}} {
		got, err := For(d)
		if err != nil || got.Family != "f" || len(got.Counts) != 7 || got.Experts != 6 || got.Chosen != 3 {
			t.Errorf("%T: %+v, %v", d, got, err)
		}
	}
	if _, err := For(&config.DSA{Config: c}); err == nil || err.Error() !=
		"usage: a model of family f has no experts to count" {
		t.Errorf("a model without experts: %v", err)
	}
}
