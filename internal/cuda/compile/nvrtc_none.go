//go:build !linux || !amd64 || nocuda

package compile

import "fmt"

// compiler replaces NVRTC, which this build cannot load.
type compiler struct{}

func loadable(string) bool { return false }

func openCompiler(path string) (*compiler, error) {
	return nil,
		fmt.Errorf("%w: this binary was built without CUDA support (tag nocuda, or not linux/amd64) and cannot load %s",
			ErrNoCompiler, path)
}

func (c *compiler) Version() (string, error) { return "", ErrNoCompiler }

func (c *compiler) Compile(name, source string, options []string) (code []byte, log string, err error) {
	return nil, "", ErrNoCompiler
}
