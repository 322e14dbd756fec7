package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/happyd/happyd/socketio"
)

func TestSocketRefusals(t *testing.T) {
	u := newBench(t).signIn("alice")
	for want, auth := range map[string]object{
		"Missing authentication token":                   {},
		"Invalid authentication token":                   {"token": "x"},
		"Session ID required for session-scoped clients": {"token": u.token, "clientType": "session-scoped"},
		"Machine ID required for machine-scoped clients": {"token": u.token, "clientType": "machine-scoped"},
	} {
		_, err := socketio.Dial(t.Context(), u.url, socketio.Options{Auth: auth, HTTPClient: u.client})
		var refused *socketio.ErrConnect
		if !errors.As(err, &refused) || refused.Message != want {
			t.Errorf("auth %v: %v", auth, err)
		}
	}
	_, err := socketio.Dial(t.Context(), u.url, socketio.Options{Auth: object{"token": 1}, HTTPClient: u.client})
	if err == nil || !contains(err.Error(), "Invalid authentication token") {
		t.Errorf("token of a wrong type: %v", err)
	}
}

// Who hears of what.
func TestAudiences(t *testing.T) {
	b := newBench(t)
	u := b.signIn("alice")
	s1, s2 := u.session("1"), u.session("2")
	u.ok("POST", "/v1/machines", object{"id": "m1", "metadata": "x"})
	ears := map[string]listening{
		"user":    u.connect(nil),
		"session": u.connect(object{"clientType": "session-scoped", "sessionId": s1}),
		"machine": u.connect(object{"clientType": "machine-scoped", "machineId": "m1"}),
		"other":   b.signIn("bob").connect(nil),
	}
	ears["user"].hears() // the machine came online
	sender := u.connect(object{"clientType": "machine-scoped", "machineId": "m2"})
	ears["user"].hears() // and so did this one
	tests := []struct {
		name string
		do   func()
		want string // who hears something
		what string // and what is in it
	}{
		{"message", func() { u.ok("POST", "/v3/sessions/"+s1+"/messages", batch("a")) }, "session user ", `"t":"new-message","sid":"` + s1 + `","message":{"id":"`},
		{"message of another session", func() { u.ok("POST", "/v3/sessions/"+s2+"/messages", batch("a")) }, "user ", `"content":{"t":"encrypted","c":"content of a"}`},
		{"message by event", func() { sender.emit("message", object{"sid": s1, "message": "c", "localId": "b"}) }, "session user ", `"seq":2,"localId":"b"`},
		{"known message", func() { sender.emit("message", object{"sid": s1, "message": "c", "localId": "b"}) }, "", ""},
		{"metadata", func() { sender.call("update-metadata", object{"sid": s1, "metadata": "new", "expectedVersion": 0}) }, "session user ", `"t":"update-session","id":"` + s1 + `","metadata":{"value":"new","version":1}}`},
		{"state", func() { sender.call("update-state", object{"sid": s1, "agentState": nil, "expectedVersion": 0}) }, "session user ", `"agentState":{"value":null,"version":1}`},
		{"alive", func() { sender.emit("session-alive", object{"sid": s1, "time": 1.8e12, "thinking": true}) }, "user ", `ephemeral {"type":"activity","id":"` + s1 + `","active":true,"activeAt":1800000000000,"thinking":true}`},
		{"end", func() { sender.call("session-end", object{"sid": s1, "time": 1.8e12}) }, "user ", `"active":false`},
		{"machine alive", func() { sender.emit("machine-alive", object{"machineId": "m1", "time": 1.8e12}) }, "user ", `ephemeral {"type":"machine-activity","id":"m1","active":true,"activeAt":1800000000000}`},
		{"machine state", func() {
			sender.call("machine-update-state", object{"machineId": "m1", "daemonState": "d", "expectedVersion": 0})
		}, "machine user ", `"t":"update-machine","machineId":"m1","daemonState":{"value":"d","version":1}`},
		{"session", func() { u.session("3") }, "user ", `"t":"new-session","id":"`},
		{"usage", func() {
			sender.call("usage-report", object{"key": "k", "sessionId": s1, "tokens": object{"total": 5}, "cost": object{"total": 0.5}})
		}, "user ", `"tokens":{"total":5}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.do()
			sender.settle()
			heard := ""
			for _, who := range []string{"machine", "other", "session", "user"} {
				for _, e := range ears[who].settle() {
					heard += who + " "
					if !contains(e, tt.what) {
						t.Errorf("%s heard %s, want %s", who, e, tt.what)
					}
				}
			}
			if heard != tt.want {
				t.Errorf("heard by %q, want %q", heard, tt.want)
			}
		})
	}
}

func TestUpdateNumbersCountUp(t *testing.T) {
	u := newBench(t).signIn("alice")
	l := u.connect(nil)
	id := u.session("t")
	u.ok("POST", "/v3/sessions/"+id+"/messages", batch("a", "b", "c"))
	l.call("update-metadata", object{"sid": id, "metadata": "m", "expectedVersion": 0})
	for i, e := range l.settle() {
		var up update
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "update ")), &up); err != nil {
			t.Fatal(err)
		}
		if up.Seq != int64(i+1) || len(up.ID) != 12 || up.CreatedAt != 1_800_000_000_000 {
			t.Errorf("update %d is %s", i, e)
		}
	}
}

func TestVersions(t *testing.T) {
	b := newBench(t)
	u := b.signIn("alice")
	id := u.session("t")
	u.ok("POST", "/v1/machines", object{"id": "m", "metadata": "meta"})
	l, bob := u.connect(nil), b.signIn("bob").connect(nil)
	steps := []struct {
		who   listening
		event string
		send  object
		want  string
	}{
		{l, "update-metadata", object{"sid": id, "metadata": "m1", "expectedVersion": 0}, `{"metadata":"m1","result":"success","version":1}`},
		{l, "update-metadata", object{"sid": id, "metadata": "m2", "expectedVersion": 0}, `{"metadata":"m1","result":"version-mismatch","version":1}`},
		{l, "update-metadata", object{"sid": id, "metadata": nil, "expectedVersion": 1}, `{"result":"error"}`},
		{l, "update-metadata", object{"sid": id, "metadata": "x"}, `{"result":"error"}`},
		{l, "update-metadata", object{"metadata": "x", "expectedVersion": 1}, `{"result":"error"}`},
		{l, "update-metadata", object{"sid": id, "metadata": 1, "expectedVersion": 1}, `{"result":"error"}`},
		{l, "update-state", object{"sid": id, "agentState": "s1", "expectedVersion": 0}, `{"agentState":"s1","result":"success","version":1}`},
		{l, "update-state", object{"sid": id, "agentState": "s2", "expectedVersion": 7}, `{"agentState":"s1","result":"version-mismatch","version":1}`},
		{l, "update-state", object{"sid": id, "agentState": nil, "expectedVersion": 1}, `{"agentState":null,"result":"success","version":2}`},
		{l, "update-state", object{"sid": id, "expectedVersion": 2}, `{"result":"error"}`},
		{l, "update-state", object{"sid": "unknown", "agentState": "s", "expectedVersion": 0}, `{"result":"error"}`},
		{bob, "update-state", object{"sid": id, "agentState": "s", "expectedVersion": 2}, `{"result":"error"}`},
		{l, "machine-update-metadata", object{"machineId": "m", "metadata": "m1", "expectedVersion": 1}, `{"metadata":"m1","result":"success","version":2}`},
		{l, "machine-update-metadata", object{"machineId": "m", "metadata": "m2", "expectedVersion": 1}, `{"metadata":"m1","result":"version-mismatch","version":2}`},
		{l, "machine-update-state", object{"machineId": "m", "daemonState": "d", "expectedVersion": 0}, `{"daemonState":"d","result":"success","version":1}`},
		{l, "machine-update-state", object{"machineId": "m", "daemonState": nil, "expectedVersion": 1}, `{"message":"Invalid parameters","result":"error"}`},
		{bob, "machine-update-metadata", object{"machineId": "m", "metadata": "m", "expectedVersion": 2}, `{"message":"Machine not found","result":"error"}`},
	}
	for _, s := range steps {
		if got := compact(s.who.call(s.event, s.send)); got != s.want {
			t.Errorf("%s %v: got %s, want %s", s.event, s.send, got, s.want)
		}
	}
	// As on the real server, this one is never answered.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if got, err := l.Call(ctx, "update-metadata", object{"sid": "unknown", "metadata": "m", "expectedVersion": 0}); err == nil {
		t.Errorf("unknown session: %s", got)
	}
	s := u.ok("GET", "/v1/sessions", nil)["sessions"].([]any)[0].(object)
	if s["metadata"] != "m1" || s["metadataVersion"] != 1.0 || s["agentState"] != nil || s["agentStateVersion"] != 2.0 {
		t.Errorf("stored %v", s)
	}
}

// active tells how a session is listed.
func (u user) active(id string) bool {
	u.Helper()
	for _, s := range u.ok("GET", "/v1/sessions", nil)["sessions"].([]any) {
		if s := s.(object); s["id"] == id {
			return s["active"].(bool)
		}
	}
	u.Fatal("session is not listed")
	return false
}

func TestPresence(t *testing.T) {
	u := newBench(t).signIn("alice")
	id := u.session("t")
	l := u.connect(nil)
	alive := func(ago time.Duration) {
		l.emit("session-alive", object{"sid": id, "time": u.relay.now().Add(-ago).UnixMilli(), "thinking": false})
		l.settle()
	}
	sweep := func() {
		t.Helper()
		if err := u.relay.sweep(); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want bool, when string) {
		t.Helper()
		if u.active(id) != want {
			t.Errorf("%s: active is %v", when, !want)
		}
	}
	is(true, "new")
	u.clock.move(9 * time.Minute)
	alive(0)
	u.clock.move(9 * time.Minute)
	sweep()
	is(true, "heard 9 minutes ago")
	u.clock.move(time.Minute)
	l.settle()
	sweep()
	is(false, "silent for 10 minutes")
	if heard := l.settle(); len(heard) != 1 || !contains(heard[0], `"type":"activity"`, `"active":false`) {
		t.Errorf("the sweep said %v", heard)
	}
	alive(11 * time.Minute)
	is(false, "after a heartbeat that is too old")
	alive(-time.Hour)
	is(true, "after a heartbeat from the future")
	if at := u.ok("GET", "/v1/sessions", nil)["sessions"].([]any)[0].(object)["activeAt"]; at != float64(u.relay.ms()) {
		t.Errorf("active at %v, want now", at)
	}
	if got := compact(l.call("session-end", object{"sid": id, "time": u.relay.ms()})); got != `{"result":"ok"}` {
		t.Errorf("end: %s", got)
	}
	is(false, "ended")
	u.clock.move(59 * time.Second)
	alive(0)
	is(false, "heartbeat within a minute of the end")
	u.clock.move(time.Second)
	alive(0)
	is(true, "heartbeat a minute after the end")
	u.ok("POST", "/v1/sessions/"+id+"/archive", nil)
	u.session("t")
	is(true, "tag posted again")
	alive(0)
	is(true, "heartbeat after the tag was posted again")
	for _, bad := range []object{{}, {"sid": id}, {"sid": id, "time": "x"}, {"sid": "unknown", "time": u.relay.ms()}, {"sid": id, "time": 1}} {
		if got := compact(l.call("session-end", bad)); got != `{"result":"error"}` {
			t.Errorf("end of %v: %s", bad, got)
		}
	}
	is(true, "ends that were none")

	u.ok("POST", "/v1/machines", object{"id": "m", "metadata": "x"})
	machineActive := func() bool { return u.ok("GET", "/v1/machines/m", nil)["machine"].(object)["active"].(bool) }
	l.emit("machine-alive", object{"machineId": "m", "time": u.relay.ms()})
	l.settle()
	if !machineActive() {
		t.Error("the machine's first heartbeat does not show")
	}
	u.clock.move(10 * time.Minute)
	sweep()
	if machineActive() {
		t.Error("a silent machine stays active")
	}
	sweep() // nothing left to do
}

func TestUsage(t *testing.T) {
	u := newBench(t).signIn("alice")
	id := u.session("t")
	l := u.connect(nil)
	good := object{"key": "k", "sessionId": id, "tokens": object{"total": 1, "input": 1}, "cost": object{"total": 0.1}}
	first := l.call("usage-report", good)
	u.clock.move(time.Second)
	second := l.call("usage-report", good)
	if first["success"] != true || second["reportId"] != first["reportId"] || second["createdAt"] != first["createdAt"] || second["updatedAt"] == first["updatedAt"] {
		t.Errorf("first %v, second %v", first, second)
	}
	for want, change := range map[string]object{
		"Invalid key": {"key": ""},
		"Invalid tokens object - must include total": {"tokens": object{}},
		"Invalid cost object - must include total":   {"cost": nil},
		"Session not found":                          {"sessionId": "unknown"},
	} {
		in := object{}
		for k, v := range good {
			in[k] = v
		}
		for k, v := range change {
			in[k] = v
		}
		if got := l.call("usage-report", in); got["success"] != false || got["error"] != want {
			t.Errorf("%v: %v", change, got)
		}
	}
}

func TestRPC(t *testing.T) {
	b := newBench(t)
	u := b.signIn("alice")
	caller, first, second := u.connect(nil), u.connect(nil), u.connect(nil)
	call := func(l listening, method any) string {
		return compact(l.call("rpc-call", object{"method": method, "params": "p"}))
	}
	none := `{"error":"RPC method not available","ok":false}`
	if got := call(caller, "s:bash"); got != none {
		t.Errorf("nobody registered: %s", got)
	}
	for _, l := range []listening{first, second, first} {
		l.emit("rpc-register", object{"method": "s:bash"})
		if got := l.hears(); got != `rpc-registered {"method":"s:bash"}` {
			t.Errorf("heard %s", got)
		}
	}
	answered := `{"ok":true,"result":"answered"}`
	if got := call(caller, "s:bash"); got != answered {
		t.Errorf("call: %s", got)
	}
	if got := call(first, "s:bash"); got != `{"error":"Cannot call RPC on the same socket","ok":false}` {
		t.Errorf("self call: %s", got)
	}
	if got := call(b.signIn("bob").connect(nil), "s:bash"); got != none {
		t.Errorf("call from another account: %s", got)
	}
	if got := call(caller, 5); got != `{"error":"Invalid parameters: method is required","ok":false}` {
		t.Errorf("no method: %s", got)
	}
	first.Close()
	// The relay may learn a moment later that the first has left.
	got := call(caller, "s:bash")
	for end := time.Now().Add(5 * time.Second); got == none && time.Now().Before(end); got = call(caller, "s:bash") {
		time.Sleep(5 * time.Millisecond)
	}
	if got != answered {
		t.Errorf("after the first left: %s", got)
	}
	second.emit("rpc-unregister", object{"method": "s:bash"})
	if got := second.hears(); got != `rpc-unregistered {"method":"s:bash"}` {
		t.Errorf("heard %s", got)
	}
	if got := call(caller, "s:bash"); got != none {
		t.Errorf("after the second unregistered: %s", got)
	}
	second.emit("rpc-register", object{})
	if got := second.hears(); got != `rpc-error {"error":"Invalid method name","type":"register"}` {
		t.Errorf("heard %s", got)
	}
}

// A call whose callee goes away fails at once, and does not hold up its caller.
func TestRPCWithoutAnAnswer(t *testing.T) {
	u := newBench(t).signIn("alice")
	release := make(chan struct{})
	callee, err := socketio.Dial(t.Context(), u.url, socketio.Options{
		Auth: object{"token": u.token}, HTTPClient: u.client,
		OnEvent: func(name string, _ []json.RawMessage, _ func(...any)) {
			if name == "rpc-request" {
				close(release)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := callee.Emit(t.Context(), "rpc-register", object{"method": "m"}); err != nil {
		t.Fatal(err)
	}
	if _, err := callee.Call(t.Context(), "ping"); err != nil {
		t.Fatal(err)
	}
	caller := u.connect(nil)
	result := make(chan string, 1)
	go func() {
		got, err := caller.Call(context.Background(), "rpc-call", object{"method": "m"})
		result <- fmt.Sprint(compact(got), err)
	}()
	<-release
	caller.settle()
	callee.Close()
	if got := <-result; got != `[{"error":"RPC method not available","ok":false}]<nil>` {
		t.Errorf("got %s", got)
	}
}

// A bug in a handler costs its connection, a bug in a change its request.
func TestPanicsAreContained(t *testing.T) {
	u := newBench(t).signIn("alice")
	dropped := false
	e := &events{r: u.relay, c: &conn{drop: func() { dropped = true }}}
	e.handle("ping", nil, func(...any) { panic("a bug") })
	if !dropped {
		t.Error("the connection stayed")
	}
	if err := u.relay.db.update(func(*bbolt.Tx) (func(), error) { panic("a bug") }); err == nil || !contains(err.Error(), "a bug") {
		t.Errorf("update: %v", err)
	}
	u.session("still working")
}

// Whatever a client sends, the relay stands.
func FuzzEvents(f *testing.F) {
	for _, name := range []string{
		"session-alive", "session-end", "machine-alive", "update-metadata", "update-state", "machine-update-metadata", "machine-update-state",
		"message", "usage-report", "ping", "rpc-unregister", "rpc-call", "other",
	} {
		f.Add(name, []byte(`{"sid":"s","time":1e300,"expectedVersion":0,"metadata":"","agentState":null,"machineId":"m","method":"x","key":"k","tokens":{"total":1},"cost":{"total":1},"message":"m"}`))
		f.Add(name, []byte(`null`))
		f.Add(name, []byte(`[1]`))
	}
	r, err := Open(Options{Path: f.TempDir() + "/relay.db"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { r.Close() })
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if strings.HasPrefix(name, "rpc-") && name != "rpc-call" || !json.Valid(data) {
			return // needs a socket, or cannot come from one
		}
		e := &events{r: r, c: &conn{account: "a", kind: userScoped}, ctx: t.Context(), slots: make(chan struct{}, 1)}
		e.dispatch(name, []json.RawMessage{data}, func(...any) {})
		e.dispatch(name, nil, func(...any) {})
	})
}
