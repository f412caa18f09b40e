package sparrow

import (
	"errors"
	"fmt"

	"sparrow/internal/device"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/plan"
)

// Resolve returns the configuration that Open would choose for the model and the device, without loading weights. For
// several devices it returns ErrUndecided, because how they share the model is known only after they were opened.
func Resolve(c Config) (_ plan.Config, err error) {
	if err := c.Validate(); err != nil {
		return plan.Config{}, err
	}
	c = c.withDefaults()
	if ranks := c.ranks(); ranks.Total() > 1 {
		return plan.Config{}, fmt.Errorf("%w: %d ranks", ErrUndecided, ranks.Total())
	}
	p, err := c.parts()
	if err != nil {
		return plan.Config{}, err
	}
	if c.Source == nil {
		defer func() { err = errors.Join(err, p.source.Close()) }()
	}
	dev, c, err := openDevices(device.Registry(), c, p, nil)
	if err != nil {
		return plan.Config{}, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	hw, err := model.Hardware(dev.Machine)
	if err != nil {
		return plan.Config{}, err
	}
	facts, err := family.Facts(p.source.Model)
	if err != nil {
		return plan.Config{}, err
	}
	out, _, err := plan.Resolve(hw, facts, c.Policy)
	return out, err
}
