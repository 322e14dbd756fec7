package fakehappy

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/happyd/happyd/socketio"
)

// client is one Socket.IO connection.
type client struct {
	socket *socketio.Socket
	cancel context.CancelFunc
	kind   string // clientType
	id     string // sessionId
	acc    string
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.socket.Store(true)
	}
	c := &client{cancel: cancel}
	_ = socketio.Serve(w, r.WithContext(ctx), socketio.ServerOptions{
		Auth: func(_ context.Context, sock *socketio.Socket) error { return s.admit(c, sock) },
		OnConnect: func(sock *socketio.Socket) {
			s.mu.Lock()
			defer s.mu.Unlock()
			c.socket = sock
			s.sockets[c] = struct{}{}
			s.scopes = append(s.scopes, c.kind)
		},
		OnEvent: func(_ *socketio.Socket, name string, args []json.RawMessage, ack func(...any)) {
			s.event(c, name, args, ack)
		},
	})
	s.mu.Lock()
	delete(s.sockets, c)
	s.mu.Unlock()
}

// refused is a refusal in the real server's words.
type refused string

func (r refused) Error() string { return string(r) }

func (s *Server) admit(c *client, sock *socketio.Socket) error {
	var auth struct {
		Token      string `json:"token"`
		ClientType string `json:"clientType"`
		SessionID  string `json:"sessionId"`
	}
	if json.Unmarshal(sock.Auth(), &auth) != nil || auth.Token == "" {
		return refused("Missing authentication token")
	}
	if auth.ClientType == "session-scoped" && auth.SessionID == "" {
		return refused("Session ID required for session-scoped clients")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	acc, ok := s.tokens[auth.Token]
	if !ok {
		return refused("Invalid authentication token")
	}
	c.kind, c.id, c.acc = auth.ClientType, auth.SessionID, acc
	return nil
}

func (s *Server) event(c *client, name string, args []json.RawMessage, ack func(...any)) {
	var in struct {
		SID      string `json:"sid"`
		Thinking bool   `json:"thinking"`
		Metadata string `json:"metadata"`
		Expected int    `json:"expectedVersion"`
	}
	if len(args) > 0 {
		_ = json.Unmarshal(args[0], &in)
	}
	if name == "ping" {
		ack(map[string]any{})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.find(in.SID)
	if ses == nil || ses.Account != c.acc {
		return // the real server does not answer either
	}
	now := time.Now()
	switch name {
	case "session-alive":
		if !ses.lastEnd.IsZero() && now.Sub(ses.lastEnd) < endGrace {
			return
		}
		ses.Active = true
		ses.Alives = append(ses.Alives, Alive{now, in.Thinking})
	case "session-end":
		ses.Active, ses.lastEnd = false, now
		ses.Ends = append(ses.Ends, now)
	case "update-metadata":
		result := "version-mismatch"
		if in.Expected == ses.MetadataVersion {
			result = "success"
			ses.Metadata = in.Metadata
			ses.MetadataVersion++
		}
		ack(map[string]any{"result": result, "version": ses.MetadataVersion, "metadata": ses.Metadata})
	}
}

// push tells the sockets that may hear of it about a message; s.mu is held.
func (s *Server) push(ses *Session, content []byte) {
	for c := range s.sockets {
		if c.acc == ses.Account && (c.kind == "user-scoped" || c.kind == "session-scoped" && c.id == ses.ID) {
			_ = c.socket.Emit("update", map[string]any{"body": map[string]any{"t": "new-message", "sid": ses.ID,
				"message": map[string]any{"content": map[string]any{"t": "encrypted", "c": content}}}})
		}
	}
}

// Sockets returns how many Socket.IO connections there are.
func (s *Server) Sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// SocketKinds returns the client types of all connections there ever were.
func (s *Server) SocketKinds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.scopes...)
}

// CloseSockets ends all Socket.IO connections, as a restart of the server does.
func (s *Server) CloseSockets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sockets {
		c.cancel()
	}
}

// FreezeSockets makes the connections that carry a WebSocket now swallow
// everything in both directions without being closed, as a NAT does that has
// forgotten them.
func (s *Server) FreezeSockets() { s.net.freeze() }

// Meddle changes a session's metadata as another client would.
func (s *Server) Meddle(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.find(id); ses != nil {
		ses.Metadata = "bWVkZGxlZA=="
		ses.MetadataVersion++
	}
}
