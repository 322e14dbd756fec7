package relay

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/happyd/happyd/socketio"
)

// The wording of these refusals is the wire's: clients compare it.
var (
	errNoToken   = errors.New("Missing authentication token")                   //lint:ignore ST1005 wire
	errBadToken  = errors.New("Invalid authentication token")                   //lint:ignore ST1005 wire
	errNoSession = errors.New("Session ID required for session-scoped clients") //lint:ignore ST1005 wire
	errNoMachine = errors.New("Machine ID required for machine-scoped clients") //lint:ignore ST1005 wire
)

// serveSocket serves one Socket.IO connection.
func (r *Relay) serveSocket(w http.ResponseWriter, req *http.Request) {
	if !r.hub.enter() {
		reply(w, http.StatusServiceUnavailable, map[string]string{"error": "Shutting down"})
		return
	}
	defer r.hub.leave()
	ctx, drop := context.WithCancel(req.Context())
	defer drop()
	defer context.AfterFunc(r.ctx, drop)()

	c := &conn{drop: drop}
	h := &events{r: r, c: c, ctx: ctx, slots: make(chan struct{}, maxCalls)}
	err := socketio.Serve(w, req.WithContext(ctx), socketio.ServerOptions{
		Auth: func(_ context.Context, s *socketio.Socket) error {
			c.socket = s
			return r.admit(c)
		},
		OnConnect: func(*socketio.Socket) {
			r.hub.add(c)
			if c.kind == machineScoped {
				r.hub.ephemeral(c.account, users, machineActivity{"machine-activity", c.machine, true, r.ms()})
			}
			r.log.Debug("relay: socket connected", "type", c.kind)
		},
		OnEvent: func(_ *socketio.Socket, name string, args []json.RawMessage, ack func(args ...any)) {
			h.handle(name, args, ack)
		},
	})
	drop()
	h.calls.Wait()
	if c.account == "" { // was never let in
		r.log.Debug("relay: socket refused", "err", err)
		return
	}
	r.hub.remove(c)
	if c.kind == machineScoped {
		r.hub.ephemeral(c.account, users, machineActivity{"machine-activity", c.machine, false, r.ms()})
	}
	r.log.Debug("relay: socket ended", "type", c.kind, "err", err)
}

// admit checks a client's connect packet and fills in who it is.
func (r *Relay) admit(c *conn) error {
	var a struct {
		Token      string `json:"token"`
		ClientType string `json:"clientType"`
		SessionID  string `json:"sessionId"`
		MachineID  string `json:"machineId"`
	}
	if auth := c.socket.Auth(); auth != nil && json.Unmarshal(auth, &a) != nil {
		return errBadToken
	}
	switch {
	case a.Token == "":
		return errNoToken
	case a.ClientType == sessionScoped && a.SessionID == "":
		return errNoSession
	case a.ClientType == machineScoped && a.MachineID == "":
		return errNoMachine
	}
	account, err := r.verify(a.Token)
	if err != nil {
		return errBadToken
	}
	c.account, c.kind = account, userScoped
	switch a.ClientType {
	case sessionScoped:
		c.kind, c.session = sessionScoped, a.SessionID
	case machineScoped:
		c.kind, c.machine = machineScoped, a.MachineID
	}
	return nil
}
