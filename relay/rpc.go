package relay

import (
	"context"
	"encoding/json"
	"errors"
)

// maxMethod bounds the length of a method's name, and maxCalls the calls that
// one socket has under way.
const (
	maxMethod = 1024
	maxCalls  = 256
)

// register makes the socket answer a method, or stop to.
func (e *events) register(data json.RawMessage, on bool) {
	var in struct {
		Method string `json:"method"`
	}
	kind, done := "unregister", "rpc-unregistered"
	if on {
		kind, done = "register", "rpc-registered"
	}
	if !decode(data, &in) || in.Method == "" || len(in.Method) > maxMethod {
		e.say("rpc-error", object{"type": kind, "error": "Invalid method name"})
		return
	}
	if on {
		e.r.hub.register(e.c, in.Method)
	} else {
		e.r.hub.mu.Lock()
		e.r.hub.unregister(e.c, in.Method)
		e.r.hub.mu.Unlock()
	}
	e.say(done, object{"method": in.Method})
}

func (e *events) say(event string, payload any) {
	if err := e.c.socket.Emit(event, payload); err != nil {
		e.c.drop()
	}
}

// call passes a call on to the socket that answers the method, and its answer
// back. Other events of the caller do not wait for it.
func (e *events) call(data json.RawMessage, ack func(...any)) {
	var in struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	refused := func(why string) { ack(object{"ok": false, "error": why}) }
	if !decode(data, &in) || in.Method == "" {
		refused("Invalid parameters: method is required")
		return
	}
	target := e.r.hub.answering(e.c.account, in.Method)
	switch {
	case target == nil:
		refused("RPC method not available")
		return
	case target == e.c:
		refused("Cannot call RPC on the same socket")
		return
	}
	select {
	case e.slots <- struct{}{}:
	default:
		refused("Too many calls under way")
		return
	}
	e.calls.Add(1)
	go func() {
		defer e.calls.Done()
		defer func() { <-e.slots }()
		ctx, cancel := context.WithTimeout(e.ctx, rpcTimeout)
		defer cancel()
		request := object{"method": in.Method}
		if in.Params != nil {
			request["params"] = in.Params
		}
		got, err := target.socket.Call(ctx, "rpc-request", request)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			refused("operation has timed out")
		case err != nil:
			refused("RPC method not available")
		case len(got) == 0:
			ack(object{"ok": true})
		default:
			ack(object{"ok": true, "result": got[0]})
		}
	}()
}
