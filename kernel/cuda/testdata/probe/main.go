// Command probe opens a device and prints the result: the smallest program that links package cuda.
package main

import (
	"errors"
	"fmt"
	"os"

	"sparrow/kernel/cuda"
)

func main() {
	err := cuda.Available()
	fmt.Println(err)
	if !cuda.Built && !errors.Is(err, cuda.ErrUnavailable) {
		os.Exit(1)
	}
}
