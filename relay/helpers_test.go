package relay

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/happyd/happyd/socketio"
)

func TestMain(m *testing.M) {
	if os.Getenv("RELAY_TEST_CHILD") != "" {
		childMain() // see kill_test.go
		return
	}
	goleak.VerifyTestMain(m)
}

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.UnixMilli(1_800_000_000_000)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// bench is a relay behind a test server.
type bench struct {
	*testing.T
	relay  *Relay
	url    string
	client *http.Client
	clock  *clock
}

func newBench(t *testing.T) *bench {
	return benchAt(t, filepath.Join(t.TempDir(), "relay", "relay.db"))
}

func benchAt(t *testing.T, path string) *bench {
	t.Helper()
	c := newClock()
	r, err := Open(Options{Path: path, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(r.Handler())
	tr := &http.Transport{}
	b := &bench{t, r, srv.URL, &http.Client{Transport: tr}, c}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return b
}

// user is an account's token at a bench.
type user struct {
	*bench
	token string
}

func (b *bench) signIn(seed string) user {
	b.Helper()
	key := ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%32s", seed)))
	challenge := []byte("a challenge of the client's choice")
	std := base64.StdEncoding.EncodeToString
	status, body := b.do("POST", "/v1/auth", "", map[string]string{
		"publicKey": std(key.Public().(ed25519.PublicKey)), "challenge": std(challenge), "signature": std(ed25519.Sign(key, challenge)),
	})
	token, _ := body["token"].(string)
	if status != 200 || token == "" || body["success"] != true {
		b.Fatalf("auth: %d %v", status, body)
	}
	return user{b, token}
}

// do makes a request and decodes the answer; a list is found under "".
func (b *bench) do(method, path, token string, in any) (int, map[string]any) {
	b.Helper()
	var body io.Reader
	if raw, ok := in.([]byte); ok {
		body = bytes.NewReader(raw)
	} else if in != nil {
		j, err := json.Marshal(in)
		if err != nil {
			b.Fatal(err)
		}
		body = bytes.NewReader(j)
	}
	req, err := http.NewRequest(method, b.url+path, body)
	if err != nil {
		b.Fatal(err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var out any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		b.Fatalf("%s %s: status %d without a JSON body: %v", method, path, resp.StatusCode, err)
	}
	if m, ok := out.(map[string]any); ok {
		return resp.StatusCode, m
	}
	return resp.StatusCode, map[string]any{"": out}
}

// ok makes a request that must succeed.
func (u user) ok(method, path string, in any) map[string]any {
	u.Helper()
	status, body := u.do(method, path, u.token, in)
	if status != 200 {
		u.Fatalf("%s %s: %d %v", method, path, status, body)
	}
	return body
}

// fails makes a request that must fail with a status.
func (u user) fails(status int, method, path string, in any) map[string]any {
	u.Helper()
	got, body := u.do(method, path, u.token, in)
	if got != status {
		u.Errorf("%s %s: got %d %v, want %d", method, path, got, body, status)
	}
	return body
}

// session creates a session and returns its id.
func (u user) session(tag string) string {
	u.Helper()
	s := u.ok("POST", "/v1/sessions", object{"tag": tag, "metadata": "meta of " + tag})["session"].(object)
	return s["id"].(string)
}

// batch is the body of a POST of messages with these local ids.
func batch(localIDs ...string) object {
	messages := []object{}
	for _, id := range localIDs {
		messages = append(messages, object{"content": "content of " + id, "localId": id})
	}
	return object{"messages": messages}
}

// rows renders messages as "seq:localId" for comparison.
func rows(body map[string]any) string {
	var out bytes.Buffer
	for _, m := range body["messages"].([]any) {
		m := m.(object)
		fmt.Fprintf(&out, "%v:%v ", m["seq"], m["localId"])
	}
	return out.String()
}

// listening is a socket that keeps what it hears.
type listening struct {
	*socketio.Conn
	t      *testing.T
	events chan string // "event body", in order
}

// connect opens a socket of the account.
func (u user) connect(auth object) listening {
	u.Helper()
	l := listening{t: u.T, events: make(chan string, 1000)}
	a := object{"token": u.token}
	for k, v := range auth {
		a[k] = v
	}
	c, err := socketio.Dial(u.Context(), u.url, socketio.Options{
		Auth: a, HTTPClient: u.client,
		OnEvent: func(name string, args []json.RawMessage, ack func(...any)) {
			if name == "rpc-request" {
				ack("answered")
				return
			}
			l.events <- name + " " + string(args[0])
		},
	})
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { c.Close() })
	l.Conn = c
	return l
}

// hears returns the next event; "" when nothing comes for a moment.
func (l listening) hears() string {
	select {
	case e := <-l.events:
		return e
	case <-time.After(5 * time.Second):
		return ""
	}
}

// settle makes sure that everything sent before is handled, and that everything
// pushed before has arrived; it returns what was heard meanwhile.
func (l listening) settle() []string {
	l.t.Helper()
	l.emit("rpc-unregister", object{"method": "mark"}) // answered by an event, in order
	var heard []string
	for {
		switch e := l.hears(); e {
		case `rpc-unregistered {"method":"mark"}`:
			return heard
		case "":
			l.t.Fatal("the relay does not answer")
		default:
			heard = append(heard, e)
		}
	}
}

// call makes a call that is answered and returns the answer.
func (l listening) call(event string, data any) object {
	l.t.Helper()
	got, err := l.Call(l.t.Context(), event, data)
	if err != nil {
		l.t.Fatalf("%s: %v", event, err)
	}
	var out object
	if len(got) > 0 {
		if err := json.Unmarshal(got[0], &out); err != nil {
			l.t.Fatal(err)
		}
	}
	return out
}

func (l listening) emit(event string, data any) {
	l.t.Helper()
	if err := l.Emit(l.t.Context(), event, data); err != nil {
		l.t.Fatal(err)
	}
}

// compact renders a value for comparison.
func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
