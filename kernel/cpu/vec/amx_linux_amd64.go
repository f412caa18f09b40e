//go:build !purego

package vec

import "golang.org/x/sys/unix"

// askForTiles requests the permission to use tile data (state component 18) for
// this process. Asking twice is harmless.
func askForTiles() error {
	const requestPermission, tileData = 0x1023, 18
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0); errno != 0 {
		return errno
	}
	return nil
}
