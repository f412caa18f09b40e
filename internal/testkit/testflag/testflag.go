// Package testflag defines the flag with which make long runs what make test leaves out.
package testflag

import "flag"

// Long enables tests that take minutes, and cases whose properties other tests already imply.
var Long = flag.Bool("long", false, "run what takes minutes, and what other tests imply (make long)")
