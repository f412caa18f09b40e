//go:build !purego && !linux

package vec

import "errors"

func askForTiles() error {
	return errors.New("only Linux is asked for it")
}
