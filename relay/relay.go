// Package relay is the embedded Happy server for one machine: the part of
// Happy's wire that happyd and the official client library use, over HTTP and
// Socket.IO, with everything it holds in one bbolt file.
//
// Sealed messages, metadata and states flow in; they are numbered, kept, and
// flow out to whoever of the same account asks or listens. An answer of 200
// means that the data is on disk.
//
// The relay never looks into what it holds (it has no key), never listens
// beyond the loopback interface, never answers a request whose Host header is
// not its own address (a web page that rebound its name), sends no CORS
// headers, and logs no token and no content. It has no pairing, no push, no
// attachments, no sharing: those paths are unknown to it, answered with 404.
package relay

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/happyd/happyd/socketio"
)

const (
	// DefaultAddr lets the system choose a free port.
	DefaultAddr = "127.0.0.1:0"

	sweepEvery    = time.Minute
	shutdownGrace = 3 * time.Second
)

// ErrLocked says that another process has the relay's file open.
var ErrLocked = errors.New("the relay's data file is in use by another process")

// Options configure a Relay.
type Options struct {
	// Path of the data file. It is created with mode 0600, its directory, if
	// missing, with 0700.
	Path string
	// Addr is where Listen listens, DefaultAddr if empty.
	Addr string
	// Log receives what the relay does; nil discards it.
	Log *slog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Relay is an open relay. Its methods may be called from any goroutine.
type Relay struct {
	addr    string
	maxBody int64 // of a request, in bytes
	maxPage int   // of messages, in bytes; a page ends early at it
	log     *slog.Logger
	now     func() time.Time
	db      *database
	key     ed25519.PrivateKey
	hub     *hub
	ended   *mutes
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	sweeper chan struct{} // closed when the sweeper is gone
}

// Open opens or creates the data file and begins to keep presence up to date.
// It fails with ErrLocked when another process holds the file.
func Open(o Options) (*Relay, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Addr == "" {
		o.Addr = DefaultAddr
	}
	db, err := openDatabase(o.Path)
	if err != nil {
		return nil, err
	}
	key, err := db.signingKey()
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	r := &Relay{
		addr: o.Addr, maxBody: bodyLimit, maxPage: pageBytes, log: o.Log, now: o.Now, db: db, key: key,
		hub: newHub(o.Log), ended: newMutes(), sweeper: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.sweepLoop()
	return r, nil
}

// Close ends all connections and closes the file. What was answered with 200
// is on disk already; Close loses nothing and neither does a crash.
func (r *Relay) Close() error {
	r.cancel()
	r.hub.close()
	<-r.sweeper
	return r.db.close()
}

// Listen opens the address of the options, which must be a loopback one.
func (r *Relay) Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	host, _, err := net.SplitHostPort(r.addr)
	if err != nil {
		return nil, fmt.Errorf("relay address %q: %w", r.addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("relay address %q: the relay listens on loopback addresses only", r.addr)
	}
	ln, err := lc.Listen(ctx, "tcp", r.addr)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return ln, nil
}

// Serve answers on ln until ctx ends, then lets running requests finish for a
// moment, ends all sockets and returns nil. It refuses, and closes, a listener
// that is not on the loopback interface.
func (r *Relay) Serve(ctx context.Context, ln net.Listener) error {
	if tcp, ok := ln.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("relay: %s is not a loopback address", ln.Addr()), ln.Close())
	}
	srv := &http.Server{
		Handler:           r.Handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			srv.Close() // what did not finish in time is cut off
		}
	})
	err := srv.Serve(ln)
	if stop() { // it failed by itself
		return fmt.Errorf("relay: %w", errors.Join(err, srv.Close()))
	}
	<-stopped
	r.hub.wait()
	return nil
}

// Handler answers the relay's HTTP and Socket.IO requests. Its sockets end with
// the request's context or the relay.
func (r *Relay) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/auth", r.postAuth)
	mux.Handle("GET /v1/sessions", r.account(r.listSessions))
	mux.Handle("POST /v1/sessions", r.account(r.createSession))
	mux.Handle("DELETE /v1/sessions/{id}", r.account(r.deleteSession))
	mux.Handle("POST /v1/sessions/{id}/archive", r.account(r.archiveSession))
	mux.Handle("GET /v2/sessions", r.account(r.pageSessions))
	mux.Handle("GET /v2/sessions/active", r.account(r.activeSessions))
	mux.Handle("GET /v3/sessions/{id}/messages", r.account(r.listMessages))
	mux.Handle("POST /v3/sessions/{id}/messages", r.account(r.postMessages))
	mux.Handle("GET /v1/machines", r.account(r.listMachines))
	mux.Handle("POST /v1/machines", r.account(r.createMachine))
	mux.Handle("GET /v1/machines/{id}", r.account(r.getMachine))
	mux.Handle("DELETE /v1/machines/{id}", r.account(r.deleteMachine))
	mux.HandleFunc("GET "+socketio.DefaultPath+"{$}", r.serveSocket)
	mux.HandleFunc(strings.TrimSuffix(socketio.DefaultPath, "/"), r.unknown) // not ServeMux's redirect
	mux.HandleFunc("/", r.unknown)
	return r.local(mux)
}

// Stats are the relay's figures.
type Stats struct {
	Accounts int   `json:"accounts"`
	Sessions int   `json:"sessions"`
	Machines int   `json:"machines"`
	Messages int   `json:"messages"`
	Sockets  int   `json:"sockets"`
	Bytes    int64 `json:"bytes"` // size of the data file
}

// Stats counts what the relay holds.
func (r *Relay) Stats() (Stats, error) {
	s, err := r.db.stats()
	s.Sockets = r.hub.count()
	return s, err
}

func (r *Relay) ms() int64 { return r.now().UnixMilli() }
