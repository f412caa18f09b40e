package browsertest

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// mostPicture is the maximum size of a picture in the repository, in bytes.
const mostPicture = 150 << 10

// pictures writes the pictures of the documentation.
func (w *world) pictures(t *testing.T, dir string) {
	p := w.open(t, w.url, screen{width: 1180, height: 820})
	save := func(name string) {
		t.Helper()
		p.eval(`new Promise((r) => setTimeout(r, 400))`, nil) // wait for elements that are drawn after the next frame
		small := reduced(t, p.shot())
		if len(small) > mostPicture {
			t.Errorf("%s has %d bytes, want at most %d", name, len(small), mostPicture)
		}
		if err := os.WriteFile(filepath.Join(dir, name), small, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.wait(`document.getElementById("model").textContent`)
	p.press("Ask")
	p.wait(`document.querySelector(".lit")`)
	save("start.png")
	p.press("Show it token by token")
	p.wait(`document.querySelector(".explore:not([hidden])")`)
	p.eval(`(() => { const s = document.querySelector("input[type=range]"); s.value = "7";
		s.dispatchEvent(new Event("input")); document.querySelector(".best button").click();
		document.querySelector(".explore").scrollIntoView(); })()`, nil)
	save("explorer.png")
	p.eval(`location.hash = "chat"`, nil)
	p.ask("What are you called?")
	p.ask("A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to go around it?")
	save("chat.png")
	p.press("New conversation")
	p.ask(sayMarkdown)
	p.eval(`document.querySelector(".thread").scrollTo(0, 90)`, nil)
	save("markdown.png")
	p.eval(`location.hash = "plans"`, nil)
	p.wait(`document.querySelector(".plans tbody [aria-expanded]")`)
	save("plans.png")
}

// reduced returns a picture encoded with its 256 most frequent colours; other colours are replaced by the nearest of
// these.
func reduced(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	uses := map[color.RGBA]int{}
	box := from.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			uses[at(x, y)]++
		}
	}
	ordered := slices.SortedFunc(maps.Keys(uses), func(a, b color.RGBA) int {
		return cmp.Or(uses[b]-uses[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var palette color.Palette
	for _, c := range ordered[:min(256, len(ordered))] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range uses {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(box, palette)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			to.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
