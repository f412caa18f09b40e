// Package v4 runs DeepSeek-V4.
package v4

import (
	"errors"

	"sparrow/kernel"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/model/nn"
)

// Load reads every weight of a checkpoint.
func Load(c *config.V4, l *nn.Loader, dev kernel.Device) (model.Model, error) {
	return nil, errors.New("v4: not loadable yet")
}
