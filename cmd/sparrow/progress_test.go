package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// clock is a clock whose time the test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func barAt(columns int) (*progress, *clock, *bytes.Buffer) {
	c, out := &clock{time.Unix(1000, 0)}, &bytes.Buffer{}
	return &progress{w: out, label: "loading", columns: columns, now: c.now, started: c.at}, c, out
}

func TestBarAppearsOnlyWhenWorkTakesLong(t *testing.T) {
	p, c, out := barAt(80)
	for i := range int64(29) {
		c.at = c.at.Add(10 * time.Millisecond)
		p.set(i, 100, "")
	}
	p.end()
	if out.Len() != 0 {
		t.Fatalf("after 290 ms the bar shows %q", out)
	}
	c.at = c.at.Add(20 * time.Millisecond)
	p.set(50, 100, "5 of 10")
	if s := out.String(); !strings.Contains(s, "loading [############............]  50 %  5 of 10") {
		t.Fatalf("the bar shows %q", s)
	}
	drawn := out.Len()
	c.at = c.at.Add(50 * time.Millisecond)
	p.set(60, 100, "")
	if out.Len() != drawn {
		t.Error("the bar is drawn twice within 100 ms")
	}
	c.at = c.at.Add(5 * time.Second)
	p.set(60, 100, "")
	if s := out.String()[drawn:]; !strings.Contains(s, "60 %") || !strings.Contains(s, "4s left") {
		t.Errorf("the bar shows %q", s)
	}
	p.end()
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Error("the bar is left on the screen")
	}
}

func TestBarIsSilentWithoutATerminalAndNeverWraps(t *testing.T) {
	p, c, out := barAt(0)
	c.at = c.at.Add(time.Minute)
	p.set(1, 2, "x")
	p.end()
	if out.Len() != 0 {
		t.Errorf("without a terminal: %q", out)
	}
	p, c, out = barAt(20)
	c.at = c.at.Add(time.Minute)
	p.set(1, 2, strings.Repeat("long ", 50))
	if n := len(strings.TrimPrefix(out.String(), "\r\x1b[K")); n > 19 {
		t.Errorf("a bar of %d characters on 20 columns", n)
	}
	p.set(1, 0, "") // a total of 0 does not divide by zero
	if newProgress(out, "x").columns != 0 || isTerminal(out) {
		t.Error("a buffer passes for a terminal")
	}
}

// On 80 columns the line of a download has the bytes and the remaining time; narrower terminals get a shorter bar, then
// no bytes.
func TestTheTimeLeftIsNotCut(t *testing.T) {
	const note = "100.00 GiB of 641.30 GiB"
	for columns, want := range map[int]string{
		120: "downloading [###.....................]  15 %  100.00 GiB of 641.30 GiB  1h53m left",
		80:  "downloading [###..................]  15 %  100.00 GiB of 641.30 GiB  1h53m left",
		60:  "downloading [###.....................]  15 %  1h53m left",
		40:  "downloading [#.......]  15 %  1h53m left"[:39],
	} {
		p, _, _ := barAt(columns)
		p.label = "downloading"
		got := p.line(1000, 6413, 1253*time.Second, note)
		if got != want || len(got) >= columns {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
	for d, want := range map[time.Duration]string{90 * time.Second: "1m30s left", 25 * time.Hour: "25h0m left",
		12*time.Minute + 31*time.Second: "13m left"} {
		if got := remaining(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestByteSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "1K": 1024, "500m": 500 << 20, "4G": 4 << 30,
		"2T": 2 << 40} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "K", "-1", "1.5G", "9000000T", "4GB"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}
