package main

import "strings"

// draft assembles a message from lines. A line that ends with a backslash continues on the next line; """ begins and
// ends a text of several lines; pasted lines become one message.
type draft struct {
	lines  []string
	quoted bool // whether the line is between """
}

const quotes = `"""`

// open reports whether the message is incomplete.
func (d *draft) open() bool { return len(d.lines) > 0 || d.quoted }

// add adds a line; whole is true if the message is complete. command is true if a message of one line, not between
// quotes, begins with a slash.
func (d *draft) add(l line) (text string, command, whole bool) {
	s := l.text
	if !d.quoted && len(d.lines) == 0 {
		if rest, ok := strings.CutPrefix(strings.TrimLeft(s, " \t"), quotes); ok {
			d.quoted, s = true, rest
			if before, ended := strings.CutSuffix(strings.TrimRight(s, " \t"), quotes); ended {
				return d.end(before, false)
			}
			if strings.TrimSpace(s) != "" {
				d.lines = append(d.lines, s)
			}
			return "", false, false
		}
	}
	if d.quoted {
		if before, ended := strings.CutSuffix(strings.TrimRight(s, " \t"), quotes); ended {
			return d.end(before, false)
		}
		d.lines = append(d.lines, s)
		return "", false, false
	}
	if l.pasted {
		d.lines = append(d.lines, s)
		return "", false, false
	}
	if before, goesOn := strings.CutSuffix(s, `\`); goesOn {
		d.lines = append(d.lines, before)
		return "", false, false
	}
	return d.end(s, len(d.lines) == 0)
}

func (d *draft) end(last string, command bool) (string, bool, bool) {
	text := strings.TrimSpace(strings.Join(append(d.lines, last), "\n"))
	*d = draft{}
	return text, command && strings.HasPrefix(text, "/"), true
}
