package socketio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

const (
	// DefaultPath is where Happy's servers answer; the slash at its end matters.
	DefaultPath = "/v1/updates/"
	// DefaultConnectTimeout bounds Dial as a whole.
	DefaultConnectTimeout = 20 * time.Second

	// readLimit bounds a packet from the server. Servers set themselves none,
	// and each new message is pushed whole, in one frame.
	readLimit = 16 << 20
)

// Options are the client's side of a connection.
type Options struct {
	// Path of the endpoint below the base URL, DefaultPath if empty.
	Path string
	// Auth is the payload of the connect packet: token, client type and so on.
	Auth map[string]any
	// HTTPClient makes the opening request, http.DefaultClient if nil. Its
	// proxy and TLS settings are used; redirects are refused, for the token
	// would follow them.
	HTTPClient *http.Client
	// Header is added to the opening request.
	Header http.Header
	// OnEvent receives the server's events, one at a time and in their order.
	// It may block and may use the connection, but a handler that falls more
	// than 32 MiB behind ends it with ErrBacklog. ack is never nil; it answers
	// the event if an answer was asked for, once, and may be called later.
	OnEvent func(name string, args []json.RawMessage, ack func(args ...any))
	// ConnectTimeout bounds Dial, DefaultConnectTimeout if zero.
	ConnectTimeout time.Duration
}

// Conn is a client's connection. Its methods may be called from any goroutine.
type Conn struct{ p *peer }

// handshake is the payload of Engine.IO's open packet; times in milliseconds.
type handshake struct {
	SID          string `json:"sid"`
	PingInterval int64  `json:"pingInterval"`
	PingTimeout  int64  `json:"pingTimeout"`
	MaxPayload   int64  `json:"maxPayload"`
}

// Dial opens a connection to the server at baseURL (http, https, ws or wss) and
// returns once the server has accepted it. A refusal by the server is an
// *ErrConnect, an HTTP answer instead of a WebSocket an *ErrStatus. ctx bounds
// the opening only.
func Dial(ctx context.Context, baseURL string, o Options) (*Conn, error) {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()

	endpoint, err := endpointURL(baseURL, o.Path)
	if err != nil {
		return nil, err
	}
	auth, err := json.Marshal(o.Auth)
	if err != nil {
		return nil, fmt.Errorf("encoding auth: %w", err)
	}
	if o.Auth == nil {
		auth = []byte("{}")
	}
	ws, err := dialWebSocket(ctx, endpoint, o)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(readLimit)
	p := newPeer(ws, o.OnEvent)
	if err := p.open(ctx, auth); err != nil {
		ws.CloseNow() // the error that matters is err
		p.cancel(err)
		return nil, err
	}
	p.start()
	go p.wait()
	return &Conn{p}, nil
}

// endpointURL joins base, path and the transport's query.
func endpointURL(base, path string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("server URL: %w", err)
	}
	switch u.Scheme {
	case "http", "https", "ws", "wss":
	default:
		return "", fmt.Errorf("server URL %q: scheme is not http(s) or ws(s)", u.Redacted())
	}
	if u.Host == "" {
		return "", fmt.Errorf("server URL %q: no host", u.Redacted())
	}
	if path == "" {
		path = DefaultPath
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/")+path, ""
	u.RawQuery, u.Fragment = "EIO=4&transport=websocket", ""
	return u.String(), nil
}

func dialWebSocket(ctx context.Context, endpoint string, o Options) (*websocket.Conn, error) {
	client := http.Client{}
	if o.HTTPClient != nil {
		client = *o.HTTPClient
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ws, resp, err := websocket.Dial(ctx, endpoint, &websocket.DialOptions{
		HTTPClient: &client,
		HTTPHeader: o.Header.Clone(),
	})
	if err == nil {
		return ws, nil
	}
	if ctx.Err() == nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, &ErrStatus{Code: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
	}
	return nil, fmt.Errorf("dialing: %w", err)
}

// open does the handshake: the server's open packet, our connect, its answer.
func (p *peer) open(ctx context.Context, auth []byte) error {
	f, err := p.next(ctx)
	if err != nil {
		return err
	}
	var h handshake
	if f.engine != engineOpen {
		return errors.New("opening: the server did not open an Engine.IO connection")
	}
	if err := json.Unmarshal(f.data, &h); err != nil {
		return fmt.Errorf("opening: reading the open packet: %w", err)
	}
	p.silence = time.Duration(h.PingInterval+h.PingTimeout) * time.Millisecond
	if h.PingInterval <= 0 || h.PingTimeout <= 0 || p.silence <= 0 || p.silence > 24*time.Hour {
		return fmt.Errorf("opening: implausible ping interval %d ms and timeout %d ms", h.PingInterval, h.PingTimeout)
	}
	p.maxSend = h.MaxPayload
	connect := socketFrame(kindConnect, auth)
	if p.maxSend > 0 && int64(len(connect)) > p.maxSend {
		return fmt.Errorf("opening: %w", ErrTooLarge)
	}
	if err := p.ws.Write(ctx, websocket.MessageText, connect); err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	for {
		f, err := p.next(ctx)
		if err != nil {
			return err
		}
		switch {
		case f.engine == enginePing:
			if err := p.ws.Write(ctx, websocket.MessageText, []byte{enginePong}); err != nil {
				return fmt.Errorf("opening: %w", err)
			}
		case f.engine == engineClose:
			return fmt.Errorf("opening: %w", ErrDisconnected)
		case f.engine != engineMessage || f.packet.nsp != rootNamespace:
		case f.packet.kind == kindConnect:
			return nil
		case f.packet.kind == kindConnectError:
			return connectError(f.packet.data)
		case f.packet.kind == kindDisconnect:
			return fmt.Errorf("opening: %w", ErrDisconnected)
		}
	}
}

// next reads one text message during the handshake.
func (p *peer) next(ctx context.Context) (frame, error) {
	for {
		kind, b, err := p.ws.Read(ctx)
		if ctx.Err() != nil {
			return frame{}, fmt.Errorf("opening: %w", ctx.Err())
		}
		if err != nil {
			return frame{}, fmt.Errorf("opening: %w", readError(err))
		}
		p.seen.Store(time.Now().UnixNano())
		if kind != websocket.MessageText {
			continue
		}
		f, err := decode(b)
		if err != nil {
			return frame{}, fmt.Errorf("opening: %w", err)
		}
		return f, nil
	}
}

// connectError reads the payload of a connect_error, an object or a string.
func connectError(data []byte) error {
	var e struct {
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if json.Unmarshal(data, &e.Message) == nil {
		return &ErrConnect{Message: e.Message}
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return &ErrConnect{Data: data}
	}
	return &ErrConnect{Message: e.Message, Data: e.Data}
}

// Emit sends an event. Nil means that it is on its way, not that it arrived.
// It never blocks; ErrTooLarge and ErrBacklog leave the connection as it was.
func (c *Conn) Emit(ctx context.Context, event string, args ...any) error {
	return c.p.emit(ctx, event, args)
}

// Call sends an event and waits for the peer's acknowledgement, whose arguments
// it returns. Only ctx bounds the wait: servers leave some calls unanswered. It
// fails at once when the connection ends.
func (c *Conn) Call(ctx context.Context, event string, args ...any) ([]json.RawMessage, error) {
	return c.p.call(ctx, event, args)
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.p.ctx.Done() }

// Err is nil while the connection runs; then it says why it ended.
func (c *Conn) Err() error { return c.p.err() }

// LastSeen is when anything was last heard from the server, by the wall clock.
func (c *Conn) LastSeen() time.Time { return time.Unix(0, c.p.seen.Load()) }

// Close sends what is queued, says goodbye and ends the connection, within two
// seconds. Events received but not yet handled are dropped; an OnEvent call in
// progress may still run when Close returns.
func (c *Conn) Close() error {
	c.p.shut(ErrClosed, socketFrame(kindDisconnect, nil))
	return nil
}
