package uplink

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is what a user is told about the uplink.
type Status struct {
	// State is the overall state, Since its beginning, Reason what happened.
	State  State     `json:"state"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
	// NextTry is when the server is asked again, absent when nothing waits.
	NextTry *time.Time `json:"next_try,omitempty"`
	// Hint is the next step for the user, empty when there is nothing to do.
	Hint string `json:"hint,omitempty"`
	// Server is the address, without a password.
	Server string `json:"server"`
	// Socket is the connection that tells presence and metadata.
	Socket SocketStatus `json:"socket"`
	// Queued counts the messages that wait, in all sessions; Bytes their size.
	Queued int   `json:"queued"`
	Bytes  int64 `json:"bytes"`
	// Sessions are all that have a server session or something waiting.
	Sessions []SessionStatus `json:"sessions"`
}

// SocketStatus is the state of the Socket.IO connection.
type SocketStatus struct {
	Connected bool       `json:"connected"`
	Since     time.Time  `json:"since"`
	LastSeen  *time.Time `json:"last_seen,omitempty"`
	Error     string     `json:"error,omitempty"`
	NextTry   *time.Time `json:"next_try,omitempty"`
}

// The states of a session.
const (
	SessionOK     = "ok"
	SessionGone   = "session_gone" // deleted by the user
	SessionParked = "parked"       // some messages were replaced, see Parked and Reason
	SessionFailed = "failing"      // what is at the head of the queue is refused, see Reason
)

// SessionStatus is the state of one session.
type SessionStatus struct {
	Key      string `json:"key"`
	ServerID string `json:"server_id,omitempty"`
	State    string `json:"state"`
	Queued   int    `json:"queued"`
	Bytes    int64  `json:"bytes"`
	// Acked is the highest server seq that was acknowledged.
	Acked int64 `json:"acked"`
	// Parked counts the messages that were cut or replaced.
	Parked int    `json:"parked,omitempty"`
	Reason string `json:"reason,omitempty"`
	Alive  bool   `json:"alive"`
}

// Status returns a snapshot.
func (u *Uplink) Status() (Status, error) {
	v := u.gate.view()
	st := Status{
		State:    v.state,
		Since:    v.since,
		Reason:   v.reason,
		NextTry:  instant(v.next),
		Hint:     u.hint(v),
		Server:   u.api.base.Redacted(),
		Socket:   u.sock.status(),
		Sessions: []SessionStatus{},
	}
	all, err := u.o.Scope.Sessions()
	if err != nil {
		return st, fmt.Errorf("listing sessions: %w", err)
	}
	pending := u.o.Scope.Pending()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, ses := range all {
		q := pending[ses.Key]
		st.Queued += q.Count
		st.Bytes += q.Bytes
		if ses.Link.ServerID == "" && q.Count == 0 {
			continue
		}
		s := u.session(ses.Key)
		o := SessionStatus{Key: ses.Key, ServerID: ses.Link.ServerID, State: SessionOK, Queued: q.Count, Bytes: q.Bytes,
			Acked: ses.Link.Acked, Parked: ses.Link.Parked, Reason: ses.Link.ParkedWhy, Alive: alive(s) && !ses.Link.Gone}
		switch {
		case ses.Link.Gone:
			o.State, o.Reason = SessionGone, "deleted on the server; nothing more of it is sent"
		case s.problem != "":
			o.State, o.Reason = SessionFailed, s.problem
		case ses.Link.Parked > 0:
			o.State = SessionParked
		}
		st.Sessions = append(st.Sessions, o)
	}
	slices.SortFunc(st.Sessions, func(a, b SessionStatus) int { return strings.Compare(a.Key, b.Key) })
	return st, nil
}

// hint is the next step for the user.
func (u *Uplink) hint(v gateView) string {
	switch v.state {
	case StateOffline:
		return "nothing to do: what is written waits on this machine and is sent when the server is back"
	case StateAuthRequired:
		if u.o.LoginHint != "" {
			return u.o.LoginHint
		}
		return "log in again with `happy auth login`; happyd notices and goes on"
	case StateWrongServer:
		return fmt.Sprintf("check server.url (now %s) and what may sit in between, such as a proxy or a login page", u.api.base.Redacted())
	case StatePaused:
		return "nothing is sent until sending is resumed; what is written waits on this machine"
	}
	return ""
}

func (k *socket) status() SocketStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := SocketStatus{Connected: k.conn != nil, Since: k.since, Error: k.err}
	if k.conn != nil {
		st.LastSeen = instant(k.conn.LastSeen())
	} else {
		st.NextTry = instant(k.next)
	}
	return st
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.Round(0)
	return &t
}
