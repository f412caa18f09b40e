// Package zmtp implements version 3.0 of ZeroMQ's transport protocol over a stream, without security (NULL).
//
// Messages of a few frames flow in and out of a Conn; commands of the protocol are handled inside. It knows no socket
// patterns: the owner of a connection decides what to send. Every length that a peer announces is checked before memory
// is taken, so a hostile peer costs one connection.
//
// It is written here because a publisher of cache events needs what libraries of the protocol do not offer: queues that
// are bounded for each subscriber and count what they drop, and a message for one subscriber alone when it joins.
package zmtp
