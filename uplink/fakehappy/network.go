package fakehappy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// network is how the server is reached: TCP, or pipes in memory.
type network struct {
	handler http.Handler

	mu    sync.Mutex
	addr  string // of TCP; kept when the server goes down
	mem   bool
	http  *http.Server
	pipes *pipeListener
	conns map[*conn]struct{}
	done  sync.WaitGroup
}

type connKey struct{}

// Start listens on 127.0.0.1 and returns the server's URL.
func (s *Server) Start() (string, error) {
	if err := s.net.up(); err != nil {
		return "", err
	}
	return "http://" + s.net.addr, nil
}

// StartInMemory makes the server reachable by Client only. Everything stays in
// the process, so a synctest bubble around it has its own time.
func (s *Server) StartInMemory() string {
	s.net.mem = true
	_ = s.net.up()
	return "http://happy.test"
}

// Client returns a client that reaches the server.
func (s *Server) Client() *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 8}
	if s.net.mem {
		t.DialContext = s.net.dialPipe
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Down closes everything: connections are refused until Up.
func (s *Server) Down() { s.net.down() }

// Up listens again, where it did before.
func (s *Server) Up() error { return s.net.up() }

// Close ends the server.
func (s *Server) Close() {
	s.net.down()
	s.net.done.Wait()
}

func (n *network) up() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var l net.Listener
	if n.mem {
		n.pipes = &pipeListener{accept: make(chan net.Conn), closed: make(chan struct{})}
		l = n.pipes
	} else {
		addr := n.addr
		if addr == "" {
			addr = "127.0.0.1:0"
		}
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		n.addr, l = tcp.Addr().String(), tcp
	}
	n.conns = make(map[*conn]struct{})
	n.http = &http.Server{
		Handler: n.handler,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	srv := n.http
	n.done.Go(func() { _ = srv.Serve(&listener{l, n}) })
	return nil
}

func (n *network) down() {
	n.mu.Lock()
	srv, conns := n.http, n.conns
	n.http, n.conns, n.pipes = nil, nil, nil
	n.mu.Unlock()
	if srv == nil {
		return
	}
	_ = srv.Close()
	for c := range conns {
		c.Close() // hijacked ones, too
	}
}

func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.socket.Load() {
			c.freeze()
		}
	}
}

func (n *network) dialPipe(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	l := n.pipes
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case l.accept <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listener counts the connections, so that they can be closed and frozen.
type listener struct {
	net.Listener
	n *network
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, n: l.n, gone: make(chan struct{}), frozen: make(chan struct{})}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.n.conns == nil {
		raw.Close()
		return nil, net.ErrClosed
	}
	l.n.conns[c] = struct{}{}
	return c, nil
}

// conn is a connection that can go dead without being closed.
type conn struct {
	net.Conn
	n      *network
	socket atomic.Bool // carries a WebSocket
	once   sync.Once
	ice    sync.Once
	gone   chan struct{}
	frozen chan struct{}
}

func (c *conn) freeze() { c.ice.Do(func() { close(c.frozen) }) }

func (c *conn) isFrozen() bool {
	select {
	case <-c.frozen:
		return true
	default:
		return false
	}
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if !c.isFrozen() {
			return n, err
		}
		if err != nil {
			<-c.gone // not even the end is seen
			return 0, net.ErrClosed
		}
	}
}

func (c *conn) Write(b []byte) (int, error) {
	if c.isFrozen() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.n.mu.Lock()
		delete(c.n.conns, c)
		c.n.mu.Unlock()
	})
	return c.Conn.Close()
}

type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "happy.test" }

var _ net.Listener = (*pipeListener)(nil)

// Wait polls until cond holds or d has passed, and says which. It is for tests
// that run on real time.
func Wait(d time.Duration, cond func() bool) bool {
	end := time.Now().Add(d)
	for !cond() {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}
