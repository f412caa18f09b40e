//go:build !linux && !darwin

package pool

// involuntarySwitches returns false, because the number is not known on this system.
func involuntarySwitches() (int64, bool) { return 0, false }
