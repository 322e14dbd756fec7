package relay

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// rpcTimeout is how long a called method may take to answer.
const rpcTimeout = 30 * time.Second

// events handles what one socket sends. Like the real server it does not look
// at the client's type: any socket may speak for anything of its account.
type events struct {
	r     *Relay
	c     *conn
	ctx   context.Context // ends with the socket
	calls sync.WaitGroup  // remote procedure calls under way
	slots chan struct{}   // one for each of them
}

type object = map[string]any

// failed is the acknowledgement of an event that was not understood.
var failed = object{"result": "error"}

// handle acts on an event. Events of one socket come one at a time. As in
// net/http, a panic costs the connection and not the process.
func (e *events) handle(name string, args []json.RawMessage, ack func(args ...any)) {
	defer func() {
		if v := recover(); v != nil {
			e.r.log.Error("relay: panic in an event", "event", name, "panic", v, "stack", string(debug.Stack()))
			e.c.drop()
		}
	}()
	e.dispatch(name, args, ack)
}

func (e *events) dispatch(name string, args []json.RawMessage, ack func(args ...any)) {
	var data json.RawMessage
	if len(args) > 0 {
		data = args[0]
	}
	var err error
	switch name {
	case "session-alive":
		err = e.sessionAlive(data)
	case "session-end":
		err = e.sessionEnd(data, ack)
	case "machine-alive":
		err = e.machineAlive(data)
	case "update-metadata":
		err = e.updateSession(data, ack, false)
	case "update-state":
		err = e.updateSession(data, ack, true)
	case "machine-update-metadata":
		err = e.updateMachine(data, ack, false)
	case "machine-update-state":
		err = e.updateMachine(data, ack, true)
	case "message":
		err = e.message(data)
	case "usage-report":
		err = e.usage(data, ack)
	case "ping":
		ack(object{})
	case "rpc-register", "rpc-unregister":
		e.register(data, name == "rpc-register")
	case "rpc-call":
		e.call(data, ack)
	default:
		e.r.log.Debug("relay: unknown event", "event", name[:min(len(name), 50)])
	}
	if err != nil {
		e.r.log.Error("relay: event failed", "event", name, "err", err)
		ack(failed)
	}
}

// decode reads an event's payload; false if it is not what was expected.
func decode(data json.RawMessage, into any) bool {
	return len(data) > 0 && json.Unmarshal(data, into) == nil
}

func (e *events) sessionAlive(data json.RawMessage) error {
	var in struct {
		SID      string   `json:"sid"`
		Time     *float64 `json:"time"`
		Thinking any      `json:"thinking"`
	}
	if !decode(data, &in) || in.SID == "" || in.Time == nil {
		return nil
	}
	return e.r.sessionAlive(e.c.account, in.SID, *in.Time, in.Thinking == true)
}

func (e *events) sessionEnd(data json.RawMessage, ack func(...any)) error {
	var in struct {
		SID  string   `json:"sid"`
		Time *float64 `json:"time"`
	}
	if !decode(data, &in) || in.Time == nil {
		ack(failed)
		return nil
	}
	found, err := e.r.sessionEnd(e.c.account, in.SID, *in.Time)
	switch {
	case err != nil:
		return err
	case !found:
		ack(failed)
	default:
		ack(object{"result": "ok"})
	}
	return nil
}

func (e *events) machineAlive(data json.RawMessage) error {
	var in struct {
		MachineID string   `json:"machineId"`
		Time      *float64 `json:"time"`
	}
	if !decode(data, &in) || in.MachineID == "" || in.Time == nil {
		return nil
	}
	return e.r.machineAlive(e.c.account, in.MachineID, *in.Time)
}

// sessionUpdate is the body of an update about a session.
type sessionUpdate struct {
	T          string     `json:"t"` // "update-session"
	ID         string     `json:"id"`
	Metadata   *versioned `json:"metadata,omitempty"`
	AgentState *versioned `json:"agentState,omitempty"`
}

// given tells a JSON null from a missing key and from a wrong type.
type given struct {
	set   bool
	value *string
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *given) UnmarshalJSON(b []byte) error {
	g.set = true
	return json.Unmarshal(b, &g.value)
}

// updateSession changes a session's metadata or agent state if the sender knew
// the current version.
func (e *events) updateSession(data json.RawMessage, ack func(...any), state bool) error {
	var in struct {
		SID             string `json:"sid"`
		Metadata        given  `json:"metadata"`
		AgentState      given  `json:"agentState"`
		ExpectedVersion *int64 `json:"expectedVersion"`
	}
	key, value := "metadata", &in.Metadata
	if state {
		key, value = "agentState", &in.AgentState
	}
	if !decode(data, &in) || in.SID == "" || in.ExpectedVersion == nil || !value.set || (!state && value.value == nil) {
		ack(failed)
		return nil
	}
	var result object // nil: no such session
	err := e.r.db.update(func(tx *bbolt.Tx) (func(), error) {
		s, err := loadSession(tx, e.c.account, in.SID)
		if err != nil || s == nil {
			return nil, err
		}
		version, current := &s.MetadataVersion, &s.Metadata
		if state {
			version, current = &s.AgentStateVersion, s.AgentState
		}
		if *version != *in.ExpectedVersion {
			result = object{"result": "version-mismatch", "version": *version, key: current}
			return nil, nil
		}
		*version++
		change := &versioned{value.value, *version}
		body := sessionUpdate{T: "update-session", ID: s.ID}
		if state {
			s.AgentState, body.AgentState = value.value, change
		} else {
			s.Metadata, body.Metadata = *value.value, change
		}
		result = object{"result": "success", "version": *version, key: value.value}
		seq, err := nextUpdates(tx, e.c.account, 1)
		if err != nil {
			return nil, err
		}
		return func() { e.r.hub.push(e.c.account, followers(s.ID), seq, e.r.ms(), body) }, e.r.saveSession(tx, s)
	})
	switch {
	case err != nil:
		return err
	case result != nil:
		ack(result)
	case state:
		ack(failed)
	default:
		// The real server answers a metadata update of an unknown session
		// never; a client that relied on an answer here would hang there.
	}
	return nil
}

// updateMachine changes a machine's metadata or daemon state if the sender knew
// the current version.
func (e *events) updateMachine(data json.RawMessage, ack func(...any), state bool) error {
	var in struct {
		MachineID       string  `json:"machineId"`
		Metadata        *string `json:"metadata"`
		DaemonState     *string `json:"daemonState"`
		ExpectedVersion *int64  `json:"expectedVersion"`
	}
	key, value := "metadata", &in.Metadata
	if state {
		key, value = "daemonState", &in.DaemonState
	}
	if !decode(data, &in) || in.MachineID == "" || in.ExpectedVersion == nil || *value == nil {
		ack(object{"result": "error", "message": "Invalid parameters"})
		return nil
	}
	result := object{"result": "error", "message": "Machine not found"}
	err := e.r.db.update(func(tx *bbolt.Tx) (func(), error) {
		m, err := loadMachine(tx, e.c.account, in.MachineID)
		if err != nil || m == nil {
			return nil, err
		}
		version, current := &m.MetadataVersion, &m.Metadata
		if state {
			version, current = &m.DaemonStateVersion, m.DaemonState
		}
		if *version != *in.ExpectedVersion {
			result = object{"result": "version-mismatch", "version": *version, key: current}
			return nil, nil
		}
		*version++
		change := &versioned{*value, *version}
		body := machineUpdate{T: "update-machine", MachineID: m.ID}
		if state {
			m.DaemonState, body.DaemonState = *value, change
			m.Active, m.ActiveAt = true, e.r.ms()
		} else {
			m.Metadata, body.Metadata = **value, change
		}
		result = object{"result": "success", "version": *version, key: *value}
		seq, err := nextUpdates(tx, e.c.account, 1)
		if err != nil {
			return nil, err
		}
		return func() { e.r.hub.push(e.c.account, watchers(m.ID), seq, e.r.ms(), body) }, e.r.saveMachine(tx, m)
	})
	if err != nil {
		return err
	}
	ack(result)
	return nil
}

// message stores one message the old way; everyone but the sender hears of it.
func (e *events) message(data json.RawMessage) error {
	var in struct {
		SID     string  `json:"sid"`
		Message *string `json:"message"`
		LocalID any     `json:"localId"`
	}
	if !decode(data, &in) || in.SID == "" || in.Message == nil {
		return nil
	}
	m := incoming{Content: in.Message}
	if id, ok := in.LocalID.(string); ok && id != "" && len(id) <= maxLocalID {
		m.LocalID = &id
	}
	err := e.r.db.update(func(tx *bbolt.Tx) (func(), error) {
		_, after, err := e.r.storeMessages(tx, e.c.account, in.SID, []incoming{m}, e.c)
		return after, err
	})
	var refusal *answer
	if errors.As(err, &refusal) {
		return nil // unknown session: dropped, as the real server does
	}
	return err
}

// report is a row: the last usage figures of a session under a key.
type report struct {
	ID        string          `json:"id"`
	Tokens    json.RawMessage `json:"tokens"`
	Cost      json.RawMessage `json:"cost"`
	CreatedAt int64           `json:"createdAt"`
	UpdatedAt int64           `json:"updatedAt"`
}

// hasTotal reports whether figures are an object with a number called total.
func hasTotal(figures json.RawMessage) bool {
	var f struct{ Total *float64 }
	return decode(figures, &f) && f.Total != nil && !math.IsInf(*f.Total, 0)
}

func (e *events) usage(data json.RawMessage, ack func(...any)) error {
	var in struct {
		Key       string          `json:"key"`
		SessionID string          `json:"sessionId"`
		Tokens    json.RawMessage `json:"tokens"`
		Cost      json.RawMessage `json:"cost"`
	}
	refused := func(why string) error {
		ack(object{"success": false, "error": why})
		return nil
	}
	switch {
	case !decode(data, &in) || in.Key == "" || len(in.Key) > maxLocalID || len(in.SessionID) > maxLocalID:
		return refused("Invalid key")
	case !hasTotal(in.Tokens):
		return refused("Invalid tokens object - must include total")
	case !hasTotal(in.Cost):
		return refused("Invalid cost object - must include total")
	}
	now := e.r.ms()
	row := report{ID: newID(now), CreatedAt: now}
	found := true
	err := e.r.db.update(func(tx *bbolt.Tx) (func(), error) {
		if in.SessionID != "" {
			s, err := loadSession(tx, e.c.account, in.SessionID)
			if err != nil || s == nil {
				found = false
				return nil, err
			}
		}
		id := e.c.account + "\x00" + in.SessionID + "\x00" + in.Key
		if _, err := load(tx, bucketUsage, id, &row); err != nil {
			return nil, err
		}
		row.Tokens, row.Cost, row.UpdatedAt = in.Tokens, in.Cost, now
		return func() {
			if in.SessionID != "" {
				e.r.hub.ephemeral(e.c.account, users, object{
					"type": "usage", "id": in.SessionID, "key": in.Key, "tokens": in.Tokens, "cost": in.Cost, "timestamp": now,
				})
			}
		}, save(tx, bucketUsage, id, row)
	})
	switch {
	case err != nil:
		return err
	case !found:
		return refused("Session not found")
	}
	ack(object{"success": true, "reportId": row.ID, "createdAt": row.CreatedAt, "updatedAt": row.UpdatedAt})
	return nil
}
