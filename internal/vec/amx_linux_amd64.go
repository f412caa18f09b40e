//go:build !purego

package vec

import "golang.org/x/sys/unix"

// requestTiles requests the permission to use tile data (state component 18) for
// this process. It may be called twice.
func requestTiles() error {
	const requestPermission, tileData = 0x1023, 18
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0); errno != 0 {
		return errno
	}
	return nil
}
