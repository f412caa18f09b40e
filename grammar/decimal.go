package grammar

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxDecimalExponent is larger than any exponent of a float64. Larger exponents could exhaust memory in exact
// arithmetic.
const maxDecimalExponent = 400

// parseDecimal converts the text of a JSON number to an exact fraction.
func parseDecimal(text string) (*big.Rat, error) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(text[i+1:])
		if err != nil || e > maxDecimalExponent || e < -maxDecimalExponent {
			return nil, fmt.Errorf("the exponent of %s is larger than %d", clip(text, i), maxDecimalExponent)
		}
	}
	if len(text) > 2*maxDecimalExponent {
		return nil, fmt.Errorf("the number has %d digits; at most %d are supported", len(text), 2*maxDecimalExponent)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", text)
	}
	return r, nil
}

// fractionDigits returns the number of digits after the point that r needs. The denominator of r has only the prime
// factors 2 and 5.
func fractionDigits(r *big.Rat) int {
	n := 0
	for rest := new(big.Rat).Set(r); !rest.IsInt() && n <= 2*maxDecimalExponent; n++ {
		rest.Mul(rest, big.NewRat(10, 1))
	}
	return n
}

// integerDigits returns the number of digits of |r| before the point.
func integerDigits(r *big.Rat) int {
	whole := new(big.Int).Quo(r.Num(), r.Denom())
	return len(whole.Abs(whole).String())
}

// scaled returns r * 10^digits, rounded up or down to an integer. exact reports whether no rounding was necessary.
func scaled(r *big.Rat, digits int, up bool) (n *big.Int, exact bool) {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	x := new(big.Rat).Mul(r, new(big.Rat).SetInt(scale))
	n, rest := new(big.Int).DivMod(x.Num(), x.Denom(), new(big.Int)) // Euclidean division rounds down
	if rest.Sign() == 0 {
		return n, true
	}
	if up {
		n.Add(n, big.NewInt(1))
	}
	return n, false
}
