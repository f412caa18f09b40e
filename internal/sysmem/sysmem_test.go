package sysmem

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 10 kB\nMemAvailable:   2048 kB\nBuffers: 1 kB\n": 2 << 20,
		"MemTotal: 10 kB\n":                 0,
		"MemAvailable:":                     0,
		"MemAvailable: x kB":                0,
		"MemAvailable: -5 kB":               0,
		"MemAvailable: 9999999999999999 kB": 0,
	} {
		if got := parse([]byte(text), "MemAvailable:"); got != want {
			t.Errorf("%q gives %d, want %d", text, got, want)
		}
	}
	if got := parse([]byte("MemTotal: 10 kB\nMemAvailable: 2 kB\n"), "MemTotal:"); got != 10<<10 {
		t.Errorf("the total is %d, want %d", got, 10<<10)
	}
	if total, free := Total(), Available(); free > total {
		t.Errorf("%d bytes of %d are available", free, total)
	}
}
