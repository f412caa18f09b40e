// Package examples holds the texts that the documentation and the demo page use.
package examples

import _ "embed"

// Station is a log of about 4,000 tokens of the built-in model with a few facts in it, such as
// "The access code of Wanda is 2479."
//
//go:embed station.log
var Station string
