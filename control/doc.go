// Package control is the conversation between a running daemon and the
// commands a user types: HTTP over a unix socket in the state directory.
//
// In flow envelopes, through [Hub.Publish], a [StatusDoc] on demand, and the
// bytes that a client pipes in. Out flow the status, a stream of the envelopes
// as JSON lines, and the piped bytes to whoever maps them:
//
//	GET  /status             the status document
//	GET  /tail?n=&session=   JSON lines, see TailLine
//	POST /ingest/{provider}  the body is streamed to the Ingest callback
//
// What travels here is decrypted, so the package never listens on a network:
// the socket has mode 0600 in a directory with mode 0700, and where the
// operating system tells who connects, only the same user (and root) is served.
// It never holds up the daemon: a slow reader misses lines and is told so.
package control
