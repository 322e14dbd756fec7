package socketio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// newServer serves Socket.IO with o at /v1/updates/ and returns its URL and a
// channel with the result of every Serve.
func newServer(t *testing.T, o ServerOptions) (string, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 100)
	var running sync.WaitGroup
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		rctx, stop := context.WithCancel(r.Context())
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		ended <- Serve(w, r.WithContext(rctx), o)
	}))
	t.Cleanup(func() {
		cancel()
		srv.CloseClientConnections()
		srv.Close()
		running.Wait()
	})
	return srv.URL, ended
}

func dial(t *testing.T, url string, o Options) *Conn {
	t.Helper()
	o.HTTPClient = ownClient(t)
	c, err := Dial(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ownClient keeps no idle connection beyond the test.
func ownClient(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// text renders arguments for comparison.
func text(args []json.RawMessage) string {
	b, err := json.Marshal(args)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// waitFor fails the test when ch stays silent.
func waitFor[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("timed out waiting for %s", what)
		panic("unreachable")
	}
}

func TestAuth(t *testing.T) {
	url, _ := newServer(t, ServerOptions{
		Auth: func(_ context.Context, s *Socket) error {
			var a struct{ Token string }
			if err := json.Unmarshal(s.Auth(), &a); err != nil || a.Token != "good" {
				return errors.New("Invalid authentication token") // the wire's wording
			}
			return nil
		},
	})
	_, err := Dial(t.Context(), url, Options{Auth: map[string]any{"token": "bad"}, HTTPClient: ownClient(t)})
	var refused *ErrConnect
	if !errors.As(err, &refused) || refused.Message != "Invalid authentication token" {
		t.Fatalf("with a bad token: %v", err)
	}
	dial(t, url, Options{Auth: map[string]any{"token": "good"}})
}

func TestEventsAndAcksBothWays(t *testing.T) {
	sockets := make(chan *Socket, 1)
	url, _ := newServer(t, ServerOptions{
		OnConnect: func(s *Socket) {
			if err := s.Emit("hello", s.ID()); err != nil {
				t.Error(err)
			}
			sockets <- s
		},
		OnEvent: func(_ *Socket, name string, args []json.RawMessage, ack func(...any)) { ack(name, args) },
	})
	hello := make(chan string, 1)
	c := dial(t, url, Options{OnEvent: func(name string, args []json.RawMessage, ack func(...any)) {
		if name == "hello" {
			hello <- text(args)
		}
		ack("client", args)
	}})
	s := waitFor(t, "the socket", sockets)
	if got, want := waitFor(t, "the first event", hello), fmt.Sprintf("[%q]", s.ID()); got != want {
		t.Errorf("first event: got %s, want %s", got, want)
	}
	got, err := c.Call(t.Context(), "x", 1, "\u2028")
	if err != nil || text(got) != `["x",[1,"\u2028"]]` {
		t.Errorf("the server's acknowledgement: %s, %v", text(got), err)
	}
	got, err = s.Call(t.Context(), "y", nil)
	if err != nil || text(got) != `["client",[null]]` {
		t.Errorf("the client's acknowledgement: %s, %v", text(got), err)
	}
}

func TestConcurrentCalls(t *testing.T) {
	url, _ := newServer(t, ServerOptions{OnEvent: func(_ *Socket, _ string, args []json.RawMessage, ack func(...any)) {
		ack(args[0])
	}})
	c := dial(t, url, Options{})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			got, err := c.Call(t.Context(), "x", i)
			if err != nil || text(got) != fmt.Sprintf("[%d]", i) {
				t.Errorf("call %d: %s, %v", i, text(got), err)
			}
		})
	}
	wg.Wait()
}

// A handler that blocks, even in a call of its own, holds up nothing else.
func TestHandlerMayCall(t *testing.T) {
	url, _ := newServer(t, ServerOptions{OnEvent: func(s *Socket, name string, _ []json.RawMessage, ack func(...any)) {
		got, err := s.Call(context.Background(), "question")
		if err != nil {
			t.Error(err)
		}
		ack(name, got)
	}})
	c := dial(t, url, Options{OnEvent: func(_ string, _ []json.RawMessage, ack func(...any)) { ack(42) }})
	got, err := c.Call(t.Context(), "x")
	if err != nil || text(got) != `["x",[42]]` {
		t.Errorf("got %s, %v", text(got), err)
	}
}

func TestBigFrames(t *testing.T) {
	big := strings.Repeat("x", 2<<20)
	url, ended := newServer(t, ServerOptions{OnEvent: func(_ *Socket, _ string, _ []json.RawMessage, ack func(...any)) { ack(big) }})
	c := dial(t, url, Options{})
	got, err := c.Call(t.Context(), "big")
	if err != nil || len(got) != 1 || len(got[0]) != len(big)+2 {
		t.Fatalf("2 MiB downwards: %v", err)
	}
	if err := c.Emit(t.Context(), "big", big); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("2 MiB upwards: %v, want ErrTooLarge", err)
	}
	if _, err := c.Call(t.Context(), "still there"); err != nil {
		t.Fatalf("after the refused packet: %v", err)
	}
	c.p.maxSend = 0 // as a client that does not obey
	if _, err := c.Call(t.Context(), "big", big); err == nil {
		t.Fatal("the server took a packet above its limit")
	}
	if err := waitFor(t, "the server's side", ended); !errors.Is(err, websocket.ErrMessageTooBig) {
		t.Errorf("the server ended with %v", err)
	}
}

func TestCloseDeliversWhatIsQueued(t *testing.T) {
	var mu sync.Mutex
	var seen int
	url, ended := newServer(t, ServerOptions{OnEvent: func(*Socket, string, []json.RawMessage, func(...any)) {
		mu.Lock()
		defer mu.Unlock()
		seen++
	}})
	c := dial(t, url, Options{})
	for range 500 {
		if err := c.Emit(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("client ended with %v", c.Err())
	}
	if err := waitFor(t, "the server's side", ended); !errors.Is(err, ErrDisconnected) {
		t.Errorf("server ended with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen != 500 {
		t.Errorf("server saw %d of 500 events", seen)
	}
	if err := c.Emit(t.Context(), "x"); !errors.Is(err, ErrClosed) {
		t.Errorf("emit after close: %v", err)
	}
	if _, err := c.Call(t.Context(), "x"); !errors.Is(err, ErrClosed) {
		t.Errorf("call after close: %v", err)
	}
}

func TestPendingCallsFailWithTheConnection(t *testing.T) {
	url, _ := newServer(t, ServerOptions{OnEvent: func(s *Socket, name string, _ []json.RawMessage, _ func(...any)) {
		if name == "kick" {
			s.Close()
		}
	}})
	c := dial(t, url, Options{})
	pending := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), "never answered")
		pending <- err
	}()
	if _, err := c.Call(t.Context(), "kick"); !errors.Is(err, ErrDisconnected) {
		t.Errorf("the kicking call: %v", err)
	}
	if err := waitFor(t, "the pending call", pending); !errors.Is(err, ErrDisconnected) {
		t.Errorf("the pending call: %v", err)
	}
	waitFor(t, "the end", c.Done())
	if !errors.Is(c.Err(), ErrDisconnected) {
		t.Errorf("ended with %v", c.Err())
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	url, _ := newServer(t, ServerOptions{})
	c := dial(t, url, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if c.Err() != nil || len(c.p.calls) != 0 {
		t.Errorf("a call that timed out left: %v, %d calls", c.Err(), len(c.p.calls))
	}
}

func TestPings(t *testing.T) {
	url, _ := newServer(t, ServerOptions{PingInterval: 20 * time.Millisecond, PingTimeout: 30 * time.Second})
	c := dial(t, url, Options{})
	begin := c.LastSeen()
	time.Sleep(150 * time.Millisecond)
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	if !c.LastSeen().After(begin) {
		t.Error("no ping was noticed")
	}
}

func TestSilentServer(t *testing.T) {
	url := rawServer(t, func(ctx context.Context, ws *websocket.Conn) {
		say(ctx, ws, `0{"sid":"s","pingInterval":50,"pingTimeout":50,"maxPayload":100}`)
		ws.Read(ctx) // the connect packet
		say(ctx, ws, `40{"sid":"t"}`)
		<-ctx.Done()
	})
	c := dial(t, url, Options{})
	waitFor(t, "the end", c.Done())
	if !errors.Is(c.Err(), ErrSilent) {
		t.Errorf("ended with %v", c.Err())
	}
}

func TestSilentClient(t *testing.T) {
	url, ended := newServer(t, ServerOptions{PingInterval: 30 * time.Millisecond, PingTimeout: 30 * time.Millisecond})
	ws, _, err := websocket.Dial(t.Context(), url+"/?EIO=4&transport=websocket", &websocket.DialOptions{HTTPClient: ownClient(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow() // end of the test
	say(t.Context(), ws, "40")
	if err := waitFor(t, "the server's side", ended); !errors.Is(err, ErrSilent) {
		t.Errorf("ended with %v", err)
	}
}

// rawServer answers with whatever script writes by hand.
func rawServer(t *testing.T, script func(context.Context, *websocket.Conn)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow() // end of the test
		script(ctx, ws)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(cancel)
	return srv.URL
}

func say(ctx context.Context, ws *websocket.Conn, s string) {
	ws.Write(ctx, websocket.MessageText, []byte(s)) // the other side's test decides
}
