package socketio

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// Defaults of ServerOptions, as Happy's server has them.
const (
	DefaultPingInterval = 15 * time.Second
	DefaultPingTimeout  = 45 * time.Second
	DefaultMaxPayload   = 1_000_000 // bytes
)

// ServerOptions are the server's side of one connection. The callbacks get the
// same Socket throughout, so a closure around one Serve call can keep the
// connection's state.
type ServerOptions struct {
	// Auth decides about a client's connect packet (Socket.Auth). An error's
	// text is sent as the reason of the refusal; the client may try again on
	// the same WebSocket. Nil accepts everyone.
	Auth func(ctx context.Context, s *Socket) error
	// OnConnect is called once per connection, after Auth. What it emits
	// follows right on the acceptance.
	OnConnect func(s *Socket)
	// OnEvent receives the client's events under the terms of Options.OnEvent.
	OnEvent func(s *Socket, name string, args []json.RawMessage, ack func(args ...any))
	// PingInterval and PingTimeout are announced to the client; silence of
	// both together ends the connection.
	PingInterval, PingTimeout time.Duration
	// ConnectTimeout is how long a WebSocket may stay without a client that is
	// let in, 20 s if zero.
	ConnectTimeout time.Duration
	// MaxPayload is the largest packet that is read, in bytes. A larger one
	// ends the connection.
	MaxPayload int64
}

// Socket is a client as the server sees it.
type Socket struct {
	id   string
	auth json.RawMessage
	p    *peer
}

// ID names the socket, unique and random.
func (s *Socket) ID() string { return s.id }

// Auth is the JSON object that the client connected with, nil if it sent none.
func (s *Socket) Auth() json.RawMessage { return s.auth }

// Emit sends an event. It never blocks: nil means queued. After ErrBacklog, a
// client that does not read, the caller should Close the socket.
func (s *Socket) Emit(event string, args ...any) error {
	return s.p.emit(context.Background(), event, args)
}

// Call sends an event and waits for the client's acknowledgement.
func (s *Socket) Call(ctx context.Context, event string, args ...any) ([]json.RawMessage, error) {
	return s.p.call(ctx, event, args)
}

// Done is closed when the connection has ended.
func (s *Socket) Done() <-chan struct{} { return s.p.ctx.Done() }

// Close throws the client out; the official client does not come back by
// itself after that. To have clients reconnect, end the request's context.
func (s *Socket) Close() { s.p.shut(ErrClosed, socketFrame(kindDisconnect, nil)) }

// Serve upgrades the request to a WebSocket and serves the connection until it
// ends, for one of the reasons in this package's errors, or r's context ends,
// which closes the WebSocket and makes clients dial again. When it returns,
// every event received has been handled. It answers requests that are no
// WebSocket handshake itself, with an HTTP error.
func Serve(w http.ResponseWriter, r *http.Request, o ServerOptions) error {
	setDefaults(&o)
	q := r.URL.Query()
	if q.Get("EIO") != "4" || q.Get("transport") != "websocket" {
		// What engine.io answers; a client that begins with polling stops here.
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"code":0,"message":"Transport unknown"}`)
		return fmt.Errorf("transport %q of protocol %q is not served", q.Get("transport"), q.Get("EIO"))
	}
	ctx := r.Context()
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return err
	}
	ws.SetReadLimit(o.MaxPayload)
	s := &Socket{id: rand.Text()}
	var handle handler
	if o.OnEvent != nil {
		handle = func(name string, args []json.RawMessage, ack func(args ...any)) { o.OnEvent(s, name, args, ack) }
	}
	s.p = newPeer(ws, handle)
	s.p.interval, s.p.silence = o.PingInterval, o.PingInterval+o.PingTimeout

	if err := s.admit(ctx, o); err != nil {
		s.p.cancel(err)
		ws.CloseNow() // the error that matters is err
		return err
	}
	if o.OnConnect != nil {
		o.OnConnect(s)
	}
	s.p.start()
	stop := context.AfterFunc(ctx, func() { s.p.shut(ErrClosed) })
	s.p.wait()
	stop()
	<-s.p.idle
	return s.p.err()
}

func setDefaults(o *ServerOptions) {
	if o.PingInterval <= 0 {
		o.PingInterval = DefaultPingInterval
	}
	if o.PingTimeout <= 0 {
		o.PingTimeout = DefaultPingTimeout
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	if o.MaxPayload <= 0 {
		o.MaxPayload = DefaultMaxPayload
	}
}

// admit opens the Engine.IO connection and waits for a client that Auth lets
// in. The acceptance is left as the first item of the out queue.
func (s *Socket) admit(ctx context.Context, o ServerOptions) error {
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	open, err := json.Marshal(struct {
		handshake
		Upgrades []string `json:"upgrades"`
	}{handshake{
		SID:          rand.Text(),
		PingInterval: o.PingInterval.Milliseconds(),
		PingTimeout:  o.PingTimeout.Milliseconds(),
		MaxPayload:   o.MaxPayload,
	}, []string{}})
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	if err := s.write(ctx, frame{engine: engineOpen, data: open}.encode()); err != nil {
		return err
	}
	for {
		f, err := s.p.next(ctx)
		if err != nil {
			return err
		}
		switch {
		case f.engine == enginePing:
			if err := s.write(ctx, frame{engine: enginePong, data: f.data}.encode()); err != nil {
				return err
			}
			continue
		case f.engine == engineClose:
			return fmt.Errorf("opening: %w", ErrDisconnected)
		case f.engine != engineMessage:
			continue
		case f.packet.kind != kindConnect:
			return fmt.Errorf("opening: %w", errEarly)
		}
		refusal := s.authorize(ctx, f.packet, o)
		if refusal == nil {
			accept, err := json.Marshal(map[string]string{"sid": s.id})
			if err != nil {
				return fmt.Errorf("opening: %w", err)
			}
			return s.p.send(socketFrame(kindConnect, accept))
		}
		if err := s.write(ctx, refusal); err != nil {
			return err
		}
	}
}

// authorize returns the packet that refuses the client, nil to let it in.
func (s *Socket) authorize(ctx context.Context, p packet, o ServerOptions) []byte {
	reason := ""
	if p.nsp != rootNamespace {
		reason = "Invalid namespace"
	} else if s.auth = p.data; o.Auth != nil {
		if err := o.Auth(ctx, s); err != nil {
			reason = err.Error()
		}
	}
	if reason == "" {
		return nil
	}
	data, err := json.Marshal(map[string]string{"message": reason})
	if err != nil {
		data = []byte(`{"message":"refused"}`)
	}
	return frame{engine: engineMessage, packet: packet{kind: kindConnectError, nsp: p.nsp, id: noID, data: data}}.encode()
}

func (s *Socket) write(ctx context.Context, b []byte) error {
	if err := s.p.ws.Write(ctx, websocket.MessageText, b); err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	return nil
}
