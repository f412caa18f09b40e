package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftimeLayouts maps directives of strftime to Go layouts, if there is one.
var strftimeLayouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'Z': "MST", 'z': "-0700", 'e': "_2",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime formats a time as C's strftime does in the C locale.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // "%-d" and similar directives, without padding
		if plain {
			i++
		}
		var s string
		switch c := format[i]; c {
		case '%':
			s = "%"
		case 'n':
			s = "\n"
		case 't':
			s = "\t"
		case 'j':
			s = fmt.Sprintf("%03d", t.YearDay())
		case 'f':
			s = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case 'w':
			s = strconv.Itoa(int(t.Weekday()))
		case 'u':
			s = strconv.Itoa((int(t.Weekday())+6)%7 + 1)
		case 's':
			s = strconv.FormatInt(t.Unix(), 10)
		default:
			layout, ok := strftimeLayouts[c]
			if !ok {
				panic(failure{fmt.Errorf("%w: strftime directive %%%c", ErrUnsupported, c)})
			}
			s = t.Format(layout)
		}
		if plain {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}
