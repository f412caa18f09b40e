// Package wire reads the JSON bodies of requests, of all interfaces, and collects their errors.
//
// The input is the bytes of a body and the fields of an interface, as a table by name ([Fields]); the output is a plain
// struct ([Decode]) or one [Error] that lists every problem, and the names of fields that had no effect
// ([Decoder.Ignored]). Packages below api describe the interfaces. The package does not depend on them, reads no clock
// and does no I/O.
//
// A body is read by a decoder of our own because encoding/json replaces invalid UTF-8, lets the last of two equal names
// win, ignores letter case and drops names it does not know.
package wire
