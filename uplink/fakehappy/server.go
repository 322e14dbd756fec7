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

func refusal(text string) []byte {
	b, _ := json.Marshal(map[string]string{"error": text})
	return b
}

// handle does what the real server does.
func (s *Server) handle(r Request) (int, []byte) {
	if r.Account == "" {
		return http.StatusUnauthorized, refusal("Invalid token")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && r.Path == "/v1/sessions":
		return s.createSession(r)
	case r.Method == http.MethodPost && r.Session != "" && strings.HasSuffix(r.Path, "/messages"):
		return s.storeMessages(r)
	case r.Method == http.MethodPost && r.Path == "/v1/machines":
		return s.createMachine(r)
	case r.Method == http.MethodGet && r.Path == "/v1/machines":
		list := []map[string]string{}
		for id, acc := range s.machines {
			if acc == r.Account {
				list = append(list, map[string]string{"id": id})
			}
		}
		return reply(list)
	case r.Method == http.MethodGet && strings.HasPrefix(r.Path, "/v1/machines/"):
		id := strings.TrimPrefix(r.Path, "/v1/machines/")
		if s.machines[id] != r.Account {
			return http.StatusNotFound, refusal("Machine not found")
		}
		return reply(map[string]any{"machine": map[string]string{"id": id}})
	case r.Method == http.MethodGet && r.Path == "/v1/sessions":
		list := []any{}
		for _, ses := range s.sessions {
			if ses.Account == r.Account {
				list = append(list, ses.wire())
			}
		}
		return reply(map[string]any{"sessions": list})
	}
	return http.StatusNotFound, []byte(fmt.Sprintf(
		`{"message":"Route %s:%s not found","error":"Not Found","statusCode":404}`, r.Method, r.Path))
}

func reply(v any) (int, []byte) {
	b, err := json.Marshal(v)
	if err != nil {
		return http.StatusInternalServerError, refusal(err.Error())
	}
	return http.StatusOK, b
}

func (ses *Session) wire() map[string]any {
	var key any
	if ses.Key != "" {
		key = ses.Key
	}
	return map[string]any{"id": ses.ID, "seq": len(ses.Messages), "metadata": ses.Metadata,
		"metadataVersion": ses.MetadataVersion, "agentState": nil, "agentStateVersion": 0,
		"dataEncryptionKey": key, "active": ses.Active, "lastMessage": nil}
}

func (s *Server) createSession(r Request) (int, []byte) {
	var in struct {
		Tag      string  `json:"tag"`
		Metadata string  `json:"metadata"`
		Key      *string `json:"dataEncryptionKey"`
	}
	if json.Unmarshal(r.Body, &in) != nil || in.Tag == "" {
		return badRequest("body/tag Required")
	}
	for _, ses := range s.sessions {
		if ses.Account == r.Account && ses.Tag == in.Tag {
			ses.Creates++
			ses.lastEnd = time.Time{}
			return reply(map[string]any{"session": ses.wire()})
		}
	}
	ses := Session{Tag: in.Tag, Account: r.Account, Metadata: in.Metadata, Active: true, Creates: 1}
	if in.Key != nil {
		ses.Key = *in.Key
	}
	return reply(map[string]any{"session": s.add(ses).wire()})
}

func badRequest(why string) (int, []byte) {
	b, _ := json.Marshal(map[string]any{"error": "Error", "message": why, "statusCode": 400})
	return http.StatusBadRequest, b
}

func (s *Server) storeMessages(r Request) (int, []byte) {
	ses := s.find(r.Session)
	if ses == nil || ses.Account != r.Account {
		return http.StatusNotFound, refusal("Session not found")
	}
	var in struct {
		Messages []struct {
			Content []byte `json:"content"`
			LocalID string `json:"localId"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return badRequest(err.Error())
	}
	if n := len(in.Messages); n == 0 || n > 100 {
		return badRequest("body/messages of a wrong length")
	}
	var out []map[string]any
	for _, m := range in.Messages {
		if m.LocalID == "" {
			return badRequest("body/messages localId empty")
		}
	}
	for _, m := range in.Messages {
		i, known := ses.index[m.LocalID]
		if !known {
			i = len(ses.Messages)
			ses.index[m.LocalID] = i
			ses.Messages = append(ses.Messages, Message{Seq: int64(i + 1), LocalID: m.LocalID, Content: m.Content})
			s.push(ses, m.Content)
		}
		out = append(out, map[string]any{"id": fmt.Sprintf("m%d", i), "seq": ses.Messages[i].Seq, "localId": m.LocalID,
			"createdAt": 0, "updatedAt": 0})
	}
	slices.SortStableFunc(out, func(a, b map[string]any) int { return int(a["seq"].(int64) - b["seq"].(int64)) })
	return reply(map[string]any{"messages": out})
}

func (s *Server) createMachine(r Request) (int, []byte) {
	var in struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(r.Body, &in) != nil || in.ID == "" {
		return badRequest("body/id Required")
	}
	if owner, ok := s.machines[in.ID]; ok && owner != r.Account {
		return http.StatusInternalServerError, refusal("Internal Server Error")
	}
	s.machines[in.ID] = r.Account
	return reply(map[string]any{"machine": map[string]string{"id": in.ID}})
}

// find returns the session with this id; s.mu is held.
func (s *Server) find(id string) *Session {
	for _, ses := range s.sessions {
		if ses.ID == id {
			return ses
		}
	}
	return nil
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
