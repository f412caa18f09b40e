package sparrow

// Version is the version of the module, the commands and the server (docs/stability.md). A release sets it only here;
// commands add the commit from which they were built.
const Version = "0.9.0"
