// Package zmtp implements version 3.0 of ZeroMQ's transport protocol (ZMTP), with the mechanism NULL.
//
// A Conn reads and writes messages of a few frames, and handles the protocol's commands. The package does not implement
// messaging patterns: the user of a connection decides what to send. Announced lengths are checked before memory is
// allocated.
//
// Libraries for ZeroMQ are not used, because a publisher of cache events must count dropped messages per subscriber and
// send a message to only one subscriber when it joins.
package zmtp
