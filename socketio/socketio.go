// Package socketio speaks the part of Socket.IO v5 (over Engine.IO v4) that
// Happy's servers and clients use: text packets over one WebSocket.
//
// Dial opens a client connection, Serve answers one on the server side; both
// share the packet codec and the machinery of a running connection. Events and
// their acknowledgements flow both ways, JSON in and JSON out.
//
// The package never reconnects, never polls over HTTP, never compresses and
// knows no namespace but "/". Binary packets are read and dropped. A
// connection that ends stays ended; whoever owns it dials again.
//
// Both sides watch for silence: Engine.IO's server sends a ping every interval
// and the client answers, so a side that hears nothing for interval + timeout
// is talking to nobody, whatever TCP says, and ends the connection.
package socketio

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is the end of a connection that this side closed.
	ErrClosed = errors.New("connection closed")
	// ErrDisconnected is the end of a connection that the peer closed in an
	// orderly way, by a disconnect or close packet.
	ErrDisconnected = errors.New("disconnected by the peer")
	// ErrSilent is the end of a connection on which nothing was heard for the
	// ping interval and timeout together.
	ErrSilent = errors.New("peer went silent")
	// ErrTooLarge refuses a packet that the peer would answer by closing the
	// connection. Nothing was sent.
	ErrTooLarge = errors.New("packet exceeds the peer's maximum payload")
	// ErrBacklog says that too much is waiting: on Emit and Call, for a peer
	// that does not read (nothing was queued); as the end of a connection, for
	// an event handler that does not keep up.
	ErrBacklog = errors.New("too much data is waiting")

	errEarly = errors.New("a packet came before the connect packet")
)

// ErrConnect is the server's refusal of a connection: a Socket.IO
// connect_error, such as the answer to an invalid token.
type ErrConnect struct {
	// Message is the server's reason.
	Message string
	// Data is what the server attached as JSON, nil if it attached nothing.
	Data []byte
}

// Error implements error.
func (e *ErrConnect) Error() string {
	return fmt.Sprintf("connection refused by the server: %q", e.Message)
}

// ErrStatus is an HTTP answer in place of a WebSocket.
type ErrStatus struct {
	// Code is the HTTP status.
	Code int
	// RetryAfter is the header of that name as sent, empty if absent.
	RetryAfter string
}

// Error implements error.
func (e *ErrStatus) Error() string {
	return fmt.Sprintf("no websocket: server answered with HTTP status %d", e.Code)
}
