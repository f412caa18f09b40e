package load

import "errors"

// ErrOptions is wrapped by every error about Options.
var ErrOptions = errors.New("load options")

// ErrRemote means that an address is not on this machine and Options.AllowRemote is off.
var ErrRemote = errors.New("the address is not on this machine")

// ErrQueued means that the streams during the load do not all run at the same time.
var ErrQueued = errors.New("streams wait in the server's queue")

// ErrServer means that the server did not report its models, so nothing was measured.
var ErrServer = errors.New("the server does not respond as expected")
