package fakehappy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

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
