package batch

import "errors"

// ErrFolder is wrapped by errors of reading or writing the folder.
var ErrFolder = errors.New("batch: folder")

// ErrFull means that an upload would exceed the budget of the folder.
var ErrFull = errors.New("batch: the folder is full")

// ErrUnknown means that a tenant has no file or batch with that id.
var ErrUnknown = errors.New("batch: unknown id")

// ErrInUse means that a file is the input of a running batch, or that a batch to be deleted is still running.
var ErrInUse = errors.New("batch: in use")

// ErrEnded means that a batch has ended and cannot be cancelled.
var ErrEnded = errors.New("batch: ended")

// ErrInput means that a file is not valid as the input of a batch.
var ErrInput = errors.New("batch: input")
