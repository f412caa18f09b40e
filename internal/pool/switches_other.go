//go:build !linux && !darwin

package pool

// involuntarySwitches is not known here.
func involuntarySwitches() (int64, bool) { return 0, false }
