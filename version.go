package sparrow

// Version is the version of the module, the commands and the server (docs/stability.md). It is set only here; commands
// add their commit.
const Version = "0.9.0"
