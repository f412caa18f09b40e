package grammar

// freeNumber accepts JSON numbers of at most [MaxIntegerDigits] digits before the point, [MaxFractionDigits] after it
// and two in the exponent, so that every number fits a float64.
type freeNumber struct{}

// A state has a mode in the low byte and, above it, the number of digits read in the current part.
const (
	numStart = iota
	numMinus
	numZero // a leading zero, after which no digit may follow
	numInteger
	numPoint
	numFraction
	numE
	numSign
	numExponent
)

const maxExponentDigits = 2

func (freeNumber) start() uint64 { return numStart }

func (freeNumber) step(q uint64, b byte) (uint64, bool) {
	mode, count := q&0xff, q>>8
	isDigit := b >= '0' && b <= '9'
	more := func(mode, limit uint64) (uint64, bool) { return mode | (count+1)<<8, count < limit }
	switch mode {
	case numStart, numMinus:
		switch {
		case b == '-':
			return numMinus, mode == numStart
		case b == '0':
			return numZero, true
		}
		return numInteger | 1<<8, isDigit
	case numZero, numInteger:
		switch {
		case isDigit && mode == numInteger:
			return more(numInteger, MaxIntegerDigits)
		case b == '.':
			return numPoint, true
		}
		return numE, b == 'e' || b == 'E'
	case numPoint:
		return numFraction | 1<<8, isDigit
	case numFraction:
		if isDigit {
			return more(numFraction, MaxFractionDigits)
		}
		return numE, b == 'e' || b == 'E'
	case numE:
		if b == '+' || b == '-' {
			return numSign, true
		}
		return numExponent | 1<<8, isDigit
	case numSign:
		return numExponent | 1<<8, isDigit
	case numExponent:
		if isDigit {
			return more(numExponent, maxExponentDigits)
		}
	}
	return 0, false
}

func (freeNumber) accepts(q uint64) bool {
	switch q & 0xff {
	case numZero, numInteger, numFraction, numExponent:
		return true
	}
	return false
}

func (freeNumber) open(q uint64) bool {
	return q&0xff != numExponent || q>>8 < maxExponentDigits
}

func (freeNumber) class(q uint64, _ int) maskKey { return maskKey{familyNumber, q} }
