package kv

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// Every part of a configuration is checked up to its bounds, and all problems are reported together.
func TestConfigurationsAreChecked(t *testing.T) {
	good := Config{Pages: 4, PageTokens: 16}
	windows := Window{Pages: 8, First: 2, Tokens: 16}
	var lines []string // whole messages
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // empty: accepted
	}{
		{"as it is", func(*Config) {}, ""},
		{"one page", func(c *Config) { c.Pages = 1 }, ""},
		{"no page", func(c *Config) { c.Pages = 0 }, "there are 0 pages"},
		{"no token", func(c *Config) { c.PageTokens = 0 }, "pages have 0 tokens"},
		{"a negative first page", func(c *Config) { c.FirstPage = -1 }, "the first page is -1"},
		{"the first page is the last", func(c *Config) { c.FirstPage = 3 }, ""},
		{"all pages reserved", func(c *Config) { c.FirstPage = 4 }, "the first 4 are reserved"},
		{"as many rows as are possible", func(c *Config) { c.Pages = math.MaxInt32 / 16 }, ""},
		{"more rows", func(c *Config) { c.Pages = math.MaxInt32/16 + 1 }, "pages of 16 tokens, want at most"},
		{"windows", func(c *Config) { c.Window = windows }, ""},
		{"no window pages", func(c *Config) { c.Window = Window{Tokens: 16} }, ""},
		{"negative window pages", func(c *Config) { c.Window = windows; c.Window.Pages = -1 }, "-1 window pages"},
		{"a negative first window page", func(c *Config) {
			c.Window = windows
			c.Window.First = -1
		}, "from page -1 on"},
		{"windows of no token", func(c *Config) { c.Window = windows; c.Window.Tokens = 0 }, "for windows of 0 tokens"},
		{"just enough window pages", func(c *Config) {
			c.Window = windows
			c.Window.Pages = windows.PerSequence(16)
		}, ""},
		{"too few window pages", func(c *Config) {
			c.Window = windows
			c.Window.Pages = windows.PerSequence(16) - 1
		}, "but a single sequence needs"},
		{"as many window rows as are possible", func(c *Config) {
			c.Window = windows
			c.Window.First = math.MaxInt32/16 - 8
		}, ""},
		{"more window rows", func(c *Config) {
			c.Window = windows
			c.Window.First = math.MaxInt32/16 - 7
		}, "window pages of 16 tokens, want at most"},
		{"two problems", func(c *Config) { c.Pages, c.FirstPage = 0, -1 }, "the first page is -1, want 0 or " +
			"more\nthere are 0 pages"},
	} {
		config := good
		c.change(&config)
		err := config.Validate()
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		} else if err != nil {
			lines = append(lines, fmt.Sprintf("%s: %q", c.name, err))
		}
	}
	table.Check(t, "configurations.txt", lines)
}
