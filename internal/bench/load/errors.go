package load

import "errors"

// ErrOptions is wrapped by errors about invalid Options.
var ErrOptions = errors.New("load options")

// ErrRemote means that an address is not on this machine and Options.AllowRemote is false.
var ErrRemote = errors.New("the address is not on this machine")

// ErrQueued means that some of the background streams wait in the server's queue, so that not all run during the load.
var ErrQueued = errors.New("streams wait in the server's queue")

// ErrServer means that the server's list of models could not be read. Nothing was measured.
var ErrServer = errors.New("the server does not respond as expected")
