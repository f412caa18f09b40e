package model

import "sparrow/kernel"

// Compiled stores the program of a pass, so that it is built only once.
type Compiled struct {
	program kernel.Program
	memory  int
}

// Program returns the stored program, or builds one if there is none or memory has changed. memory is a number that
// increases whenever the address of the cache, or of other memory that outlives passes, changes.
func (c *Compiled) Program(memory int, build func() (kernel.Program, error)) (kernel.Program, error) {
	if c.program == nil || c.memory != memory {
		program, err := build()
		if err != nil {
			return nil, err
		}
		c.program, c.memory = program, memory
	}
	return c.program, nil
}
