package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// stallTimeout is how long a client may leave a line unread before it is cut off.
const stallTimeout = 30 * time.Second

// ErrUnknownProvider is what an Ingest callback returns for a provider that it
// has no adapter for.
var ErrUnknownProvider = errors.New("unknown provider")

// Options are the daemon's side of the conversation. Status and Hub are
// required.
type Options struct {
	// Status makes the document for GET /status.
	Status func(context.Context) (StatusDoc, error)
	// Hub is what GET /tail streams from.
	Hub *Hub
	// Ingest consumes what a client pipes in, until the end of body or the end
	// of ctx. nil: not offered.
	Ingest func(ctx context.Context, provider string, body io.Reader) error
	// Log receives what goes wrong with a connection; nil discards it.
	Log *slog.Logger
}

// Server answers on the control socket.
type Server struct {
	opts     Options
	listener net.Listener
	cleanup  func()
	http     *http.Server

	mu       sync.Mutex // guards closed, and handlers.Add against handlers.Wait
	closed   bool
	handlers sync.WaitGroup
}

// Listen opens the control socket of a state directory, which it creates if
// need be. The caller must own the directory (by the store's lock), and must
// call Serve.
func Listen(stateDir string, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	l, cleanup, err := listen(stateDir)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, cleanup: cleanup}
	s.listener = sameUser{Listener: l, log: opts.Log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", s.status)
	mux.HandleFunc("GET /tail", s.tail)
	mux.HandleFunc("POST /ingest/{provider}", s.ingest)
	s.http = &http.Server{
		Handler:           s.counted(mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Serve answers until ctx ends, then closes every connection, removes the
// socket and returns nil; an error means that the socket broke before. It
// returns only when the status and ingest callbacks have returned, too.
func (s *Server) Serve(ctx context.Context) error {
	defer s.cleanup()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }

	done := make(chan error, 1)
	go func() { done <- s.http.Serve(s.listener) }()
	var serveErr error
	select {
	case <-ctx.Done():
	case serveErr = <-done:
	}

	// The requests' contexts have ended, so tails end by themselves. A body
	// that is being read ends only with its connection.
	cancel()
	grace, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if s.http.Shutdown(grace) != nil {
		s.http.Close()
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.handlers.Wait() // Close does not
	if serveErr != nil {
		return fmt.Errorf("serving the control socket: %w", serveErr)
	}
	<-done
	return nil
}

// counted lets Serve wait for the handlers.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		s.handlers.Add(1)
		s.mu.Unlock()
		defer s.handlers.Done()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	doc, err := s.opts.Status(r.Context())
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, fmt.Errorf("collecting the status: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client is a process of this user: if it goes away, that is its wish.
	_ = json.NewEncoder(w).Encode(doc)
}

func (s *Server) tail(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	n := 0
	if text := query.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			s.refuse(w, http.StatusBadRequest, fmt.Errorf("n=%q is not a number of lines", text))
			return
		}
	}
	reader := s.opts.Hub.subscribe(query.Get("session"), n)
	defer s.opts.Hub.unsubscribe(reader)

	w.Header().Set("Content-Type", "application/jsonl")
	out := http.NewResponseController(w)
	if out.Flush() != nil { // the client learns that it is connected
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-reader.wake:
			lines, missed := s.opts.Hub.take(reader)
			if !s.writeLines(w, out, lines, missed) {
				return
			}
		}
	}
}

// writeLines tells whether the client is still there.
func (s *Server) writeLines(w io.Writer, out *http.ResponseController, lines []line, missed int) bool {
	if missed > 0 {
		note, err := json.Marshal(TailLine{Missed: missed})
		if err != nil {
			return false
		}
		lines = append(lines, line{data: append(note, '\n')})
	}
	for _, l := range lines {
		if out.SetWriteDeadline(time.Now().Add(stallTimeout)) != nil {
			return false
		}
		if _, err := w.Write(l.data); err != nil {
			return false
		}
	}
	return out.Flush() == nil
}

// providerName is what a provider may be called in a request.
var providerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func (s *Server) ingest(w http.ResponseWriter, r *http.Request) {
	provider := r.PathValue("provider")
	switch {
	case s.opts.Ingest == nil:
		s.refuse(w, http.StatusNotImplemented, errors.New("this daemon takes no live streams"))
		return
	case !providerName.MatchString(provider):
		s.refuse(w, http.StatusBadRequest, errors.New("malformed provider name"))
		return
	}
	err := s.opts.Ingest(r.Context(), provider, r.Body)
	switch {
	case errors.Is(err, ErrUnknownProvider):
		s.refuse(w, http.StatusNotFound, fmt.Errorf("%w %q", ErrUnknownProvider, provider))
	case err != nil:
		s.refuse(w, http.StatusInternalServerError, err)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// failure is the body of an answer that is not a success.
type failure struct {
	Error string `json:"error"`
}

func (s *Server) refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure{Error: err.Error()})
}

// sameUser accepts only connections of this process's user and of root.
type sameUser struct {
	net.Listener
	log *slog.Logger
}

func (l sameUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		unix, ok := conn.(*net.UnixConn)
		if !ok {
			return conn, nil
		}
		uid, known, err := peerUID(unix)
		if !known || err == nil && allowed(uid) {
			return conn, nil
		}
		l.log.Warn("refused a connection to the control socket", "uid", uid, "err", err)
		conn.Close()
	}
}

func allowed(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
