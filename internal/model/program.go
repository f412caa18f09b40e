package model

import "sparrow/kernel"

// Compiled keeps the program of a pass.
type Compiled struct {
	program kernel.Program
	memory  int
}

// Program returns the program that build made, or builds it: memory is a number that increases whenever memory that the
// program uses, and that outlives passes, has moved.
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
