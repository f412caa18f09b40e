package batch

import "errors"

// ErrFolder is wrapped by every error about the folder itself.
var ErrFolder = errors.New("batch: folder")

// ErrFull means that the budget of the folder has no space for an upload.
var ErrFull = errors.New("batch: the folder is full")

// ErrUnknown means that a tenant has no file or batch with that id.
var ErrUnknown = errors.New("batch: unknown id")

// ErrInUse means that a batch that has not ended needs the file, or that the batch itself has not ended.
var ErrInUse = errors.New("batch: in use")

// ErrEnded means that a batch has ended and cannot be cancelled.
var ErrEnded = errors.New("batch: ended")

// ErrInput means that a file cannot be the input of a batch.
var ErrInput = errors.New("batch: input")
