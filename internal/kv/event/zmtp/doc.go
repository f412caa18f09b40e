// Package zmtp implements version 3.0 of ZeroMQ's transport protocol over a stream, without security (NULL).
//
// Messages of a few frames flow in and out of a Conn; commands of the protocol are handled inside. It does not
// implement socket patterns: the owner of a connection decides what to send. Every length that a peer announces is
// checked before memory is allocated, so a hostile peer cannot use more than one connection.
//
// The project has its own implementation because a publisher of cache events needs features that libraries of the
// protocol do not have: bounded queues for each subscriber that count dropped messages, and a message for only one
// subscriber when it joins.
package zmtp
