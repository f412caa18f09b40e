package grammar

import (
	"errors"
	"math/big"
	"slices"
)

// errFormat is turned into a SchemaError by the caller, who knows the pointer.
var errFormat = errors.New("unknown format")

// Parts of the formats below. Dates are real ones: no 30 February, and 29 February in leap years only.
const (
	dateRule = `(\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))` +
		`|(\d\d(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)-02-29)`
	timeRule  = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`
	octetRule = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	labelRule = `[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	hexRule   = `[0-9A-Fa-f]{1,4}`
)

// formats are the formats of strings, as patterns. Each accepts a practical part of what its RFC allows, never more.
var formats = map[string]string{
	"date":      `^` + dateRule + `$`,
	"time":      `^` + timeRule + `$`,
	"date-time": `^` + dateRule + `T` + timeRule + `$`,
	"duration":  `^P(\d{1,9}W|\d{1,9}Y(\d{1,9}M)?(\d{1,9}D)?|\d{1,9}M(\d{1,9}D)?|\d{1,9}D|(\d{1,9}D)?T(\d{1,9}H(\d{1,9}M)?(\d{1,9}S)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S))$`,
	"uuid":      `^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`,
	"email":     `^[A-Za-z0-9_+-]{1,30}(\.[A-Za-z0-9_+-]{1,30})?@([A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?\.){1,3}[A-Za-z]{2,16}$`,
	"hostname":  `^` + labelRule + `(\.` + labelRule + `){0,2}$`,
	"ipv4":      `^` + octetRule + `(\.` + octetRule + `){3}$`,
	"ipv6": `^((` + hexRule + `:){7}` + hexRule + `|(` + hexRule + `:){1,6}:` + hexRule + `|::(` + hexRule +
		`:){0,5}` + hexRule + `|::)$`,
	"uri": `^(https?|ftp)://` + labelRule + `(\.` + labelRule +
		`){0,2}(:[1-9]\d{0,3})?(/[A-Za-z0-9._~-]{0,64}){0,8}(\?[A-Za-z0-9._~=&-]{0,128})?(#[A-Za-z0-9._~-]{0,64})?$`,
}

// integerFormats are the formats of OpenAPI that bound a number; they say nothing about strings.
var integerFormats = map[string]bounds{
	"int32": {lo: big.NewRat(-1<<31, 1), hi: big.NewRat(1<<31-1, 1)},
	"int64": {lo: big.NewRat(-1<<63, 1), hi: big.NewRat(1<<63-1, 1)},
}

// floatFormats are the formats of OpenAPI that every number produced here satisfies.
var floatFormats = map[string]bool{"float": true, "double": true}

func numericFormat(keyword, text string) bool {
	_, ok := integerFormats[text]
	return keyword == "format" && (ok || floatFormats[text])
}

func sortedFormats() []string {
	var names []string
	for name := range formats {
		names = append(names, name)
	}
	for name := range integerFormats {
		names = append(names, name)
	}
	for name := range floatFormats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
