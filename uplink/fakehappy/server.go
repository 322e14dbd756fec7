// Package fakehappy is a Happy server for tests: the part of the wire that the
// uplink uses, kept in memory, with faults on demand and everything that was
// said to it laid open.
//
// It stores messages as the real server does (dropped by local id, one
// gap-free sequence per session) and shows presence as the real one does
// (heartbeats count for nothing in the minute after an end, unless the tag is
// posted again). It never looks into ciphertext. It listens on 127.0.0.1, or
// on a pipe in memory, where testing/synctest controls its time.
package fakehappy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// endGrace is how long heartbeats are ignored after a session's end.
const endGrace = time.Minute

// Message is a stored message.
type Message struct {
	Seq     int64
	LocalID string
	Content []byte // the ciphertext
}

// Session is a session as the server has it.
type Session struct {
	ID, Tag, Account string
	Key              string // dataEncryptionKey, empty for null
	Metadata         string // base64
	MetadataVersion  int
	Active           bool
	Messages         []Message
	Creates          int     // POSTs of its tag
	Alives           []Alive // heartbeats that counted
	Ends             []time.Time
	lastEnd          time.Time
	index            map[string]int // of Messages, by local id
}

// Alive is a heartbeat that counted.
type Alive struct {
	At       time.Time
	Thinking bool
}

// Request is one HTTP request as it was answered.
type Request struct {
	At      time.Time
	Method  string
	Path    string
	Account string // empty for a token that is not accepted
	Session string // id, for requests about one
	Size    int    // of the body
	Body    []byte // only while a fault is decided
	Status  int    // 0 when the connection was dropped
}

// Server is the fake. Its methods are safe for concurrent use.
type Server struct {
	mu       sync.Mutex
	tokens   map[string]string // token -> account
	sessions []*Session
	machines map[string]string // id -> account
	requests []Request
	fault    func(Request) Fault
	sockets  map[*client]struct{}
	scopes   []string // client types of all sockets so far
	nextID   int

	net network
}

// New makes a server that accepts the token of account "acc".
func New() *Server {
	s := &Server{
		tokens:   map[string]string{Token("acc"): "acc"},
		machines: make(map[string]string),
		sockets:  make(map[*client]struct{}),
	}
	s.net.handler = s
	return s
}

// Token is a token of the account, in the form of the real ones.
func Token(account string) string {
	claims, _ := json.Marshal(map[string]string{"sub": account})
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

// Accept adds a token.
func (s *Server) Accept(token, account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = account
}

// Revoke makes the server answer 401 to a token.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}

// OwnMachine makes a machine id belong to an account.
func (s *Server) OwnMachine(id, account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines[id] = account
}

// Put creates a session as another client would have.
func (s *Server) Put(ses Session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(ses).ID
}

func (s *Server) add(ses Session) *Session {
	s.nextID++
	ses.ID = fmt.Sprintf("cses%06d", s.nextID)
	ses.index = make(map[string]int)
	for i, m := range ses.Messages {
		ses.index[m.LocalID] = i
	}
	s.sessions = append(s.sessions, &ses)
	return &ses
}

// Delete deletes a session, as the user does in the app.
func (s *Server) Delete(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(x *Session) bool { return x.ID == id })
}

// Reset forgets all sessions and machines, as a server with a new database.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions, s.machines = nil, make(map[string]string)
}

// Sessions returns copies of all sessions in the order of their creation.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Session, len(s.sessions))
	for i, ses := range s.sessions {
		out[i] = *ses
		out[i].Messages = slices.Clone(ses.Messages)
		out[i].Alives = slices.Clone(ses.Alives)
		out[i].Ends = slices.Clone(ses.Ends)
	}
	return out
}

// ByTag returns the session with this tag.
func (s *Server) ByTag(tag string) (Session, bool) {
	for _, ses := range s.Sessions() {
		if ses.Tag == tag {
			return ses, true
		}
	}
	return Session{}, false
}

// Requests returns the requests so far, in the order of their arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Machines returns the machines by id, with their accounts.
func (s *Server) Machines() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]string, len(s.machines))
	for k, v := range s.machines {
		out[k] = v
	}
	return out
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/updates/" {
		s.serveSocket(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client gave up
	}
	req := Request{At: time.Now(), Method: r.Method, Path: r.URL.Path, Size: len(body)}
	if rest, ok := strings.CutPrefix(req.Path, "/v3/sessions/"); ok {
		req.Session, _, _ = strings.Cut(rest, "/")
	}
	s.mu.Lock()
	req.Account = s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	n := len(s.requests)
	s.requests = append(s.requests, req)
	fault := s.fault
	s.mu.Unlock()
	req.Body = body

	var f Fault
	if fault != nil {
		f = fault(req)
	}
	if !f.wait(r.Context()) || f.Drop {
		drop(w)
		return
	}
	status, answer := f.Status, []byte(f.Body)
	if status == 0 {
		status, answer = s.handle(req)
	} else if f.Body == "" {
		answer, _ = json.Marshal(map[string]any{"error": http.StatusText(status)})
	}
	if f.DropAnswer {
		drop(w)
		return
	}
	s.mu.Lock()
	s.requests[n].Status = status
	s.mu.Unlock()
	kind := "application/json"
	if f.ContentType != "" {
		kind = f.ContentType
	}
	w.Header().Set("Content-Type", kind)
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

func (f Fault) wait(ctx context.Context) bool {
	if f.Delay <= 0 {
		return true
	}
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
