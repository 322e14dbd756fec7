package socketio

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const openPacket = `0{"sid":"s","upgrades":[],"pingInterval":15000,"pingTimeout":45000,"maxPayload":1000000}`

func TestDialRefusals(t *testing.T) {
	tests := []struct {
		name  string
		lines []string // what the server says
		want  string   // in the error
	}{
		{"no open packet", []string{`40{"sid":"x"}`}, "did not open"},
		{"open packet is no JSON", []string{`0{`}, "open packet"},
		{"no ping interval", []string{`0{"sid":"s"}`}, "implausible"},
		{"overflowing ping interval", []string{`0{"pingInterval":9223372036854775807,"pingTimeout":1}`}, "implausible"},
		{"malformed answer", []string{openPacket, `42{`}, "malformed"},
		{"disconnect", []string{openPacket, "41"}, "disconnected"},
		{"engine close", []string{openPacket, "1"}, "disconnected"},
		{"refusal as a string", []string{openPacket, `44"go away"`}, "go away"},
		{"refusal after a ping", []string{openPacket, "2", `44{"message":"no","data":{"code":7}}`}, "no"},
		{"auth above the limit", []string{`0{"pingInterval":1000,"pingTimeout":1000,"maxPayload":3}`}, "maximum payload"},
		{"silence", []string{openPacket}, "deadline"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := rawServer(t, func(ctx context.Context, ws *websocket.Conn) {
				for _, l := range tt.lines {
					say(ctx, ws, l)
				}
				for {
					if _, _, err := ws.Read(ctx); err != nil {
						return
					}
				}
			})
			timeout := DefaultConnectTimeout
			if tt.want == "deadline" {
				timeout = 100 * time.Millisecond
			}
			_, err := Dial(t.Context(), url, Options{HTTPClient: ownClient(t), ConnectTimeout: timeout})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestDialURLs(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:1":           "http://h:1/v1/updates/?EIO=4&transport=websocket",
		"https://h/base/":      "https://h/base/v1/updates/?EIO=4&transport=websocket",
		"wss://h/?x=1#y":       "wss://h/v1/updates/?EIO=4&transport=websocket",
		"ftp://h":              "",
		"h:80":                 "",
		"http://":              "",
		"http://[::1":          "",
		"https://u:secret@h:x": "",
	} {
		got, err := endpointURL(in, "")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", in, got, err)
		}
	}
}

func TestDialHTTPAnswers(t *testing.T) {
	var elsewhere atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved/":
			http.Redirect(w, r, "/there/", http.StatusTemporaryRedirect)
		case "/there/":
			elsewhere.Store(true)
		default:
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	_, err := Dial(t.Context(), srv.URL, Options{HTTPClient: ownClient(t)})
	var status *ErrStatus
	if !errors.As(err, &status) || status.Code != 503 || status.RetryAfter != "7" {
		t.Errorf("busy server: %v", err)
	}
	_, err = Dial(t.Context(), srv.URL, Options{HTTPClient: ownClient(t), Path: "/moved/"})
	if !errors.As(err, &status) || status.Code != 307 || elsewhere.Load() {
		t.Errorf("redirect: %v, followed %v", err, elsewhere.Load())
	}
	srv.Close()
	if _, err := Dial(t.Context(), srv.URL, Options{HTTPClient: ownClient(t)}); err == nil || errors.As(err, &status) && status.Code == 0 {
		t.Errorf("dead port: %v", err)
	}
}

func TestMalformedPacketEndsTheConnection(t *testing.T) {
	url := rawServer(t, func(ctx context.Context, ws *websocket.Conn) {
		say(ctx, ws, openPacket)
		ws.Read(ctx) // the connect packet
		say(ctx, ws, `40{"sid":"t"}`)
		ws.Write(ctx, websocket.MessageBinary, []byte("ignored")) // the client's test decides
		for _, ignored := range []string{"3", "5", "6", `43999["nobody asked"]`, `451-["a"]`, `42/other,["x"]`} {
			say(ctx, ws, ignored)
		}
		say(ctx, ws, `42["fine"]`)
		say(ctx, ws, `42["cut`)
		<-ctx.Done()
	})
	got := make(chan string, 10)
	c := dial(t, url, Options{OnEvent: func(name string, _ []json.RawMessage, ack func(...any)) {
		ack("nobody asked for it")
		got <- name
	}})
	waitFor(t, "the end", c.Done())
	if c.Err() == nil || !strings.Contains(c.Err().Error(), "malformed") {
		t.Errorf("ended with %v", c.Err())
	}
	if name := waitFor(t, "the event", got); name != "fine" {
		t.Errorf("got event %q", name)
	}
}

func TestServeRefusals(t *testing.T) {
	url, ended := newServer(t, ServerOptions{})
	resp, err := ownClient(t).Get(url + "/?EIO=4&transport=polling")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 400 || !strings.Contains(string(body), "Transport unknown") {
		t.Errorf("polling: %d %s", resp.StatusCode, body)
	}
	<-ended
	resp, err = ownClient(t).Get(url + "/?EIO=4&transport=websocket")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("no upgrade: %d", resp.StatusCode)
	}
	<-ended

	tests := []struct {
		name, say, want string // what the client says, how the server ends
		answer          string // what the client hears first
	}{
		{"event first", `42["x"]`, "before the connect", ""},
		{"nothing", "", "deadline", ""},
		{"malformed", "42", "malformed", ""},
		{"other namespace", `40/admin,{}`, "deadline", `44/admin,{"message":"Invalid namespace"}`},
		{"close", "1", "disconnected", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url, ended := url, ended
			if tt.want == "deadline" {
				url, ended = newServer(t, ServerOptions{ConnectTimeout: time.Second})
			}
			ws, _, err := websocket.Dial(t.Context(), url+"/?EIO=4&transport=websocket", &websocket.DialOptions{HTTPClient: ownClient(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()  // end of the test
			ws.Read(t.Context()) // the open packet
			if tt.say != "" {
				say(t.Context(), ws, tt.say)
			}
			if tt.answer != "" {
				if _, b, err := ws.Read(t.Context()); string(b) != tt.answer {
					t.Errorf("answered %s, %v", b, err)
				}
			}
			if err := waitFor(t, "the server's side", ended); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ended with %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCrossOriginIsRefused(t *testing.T) {
	url, _ := newServer(t, ServerOptions{})
	_, err := Dial(t.Context(), url, Options{HTTPClient: ownClient(t), Header: http.Header{"Origin": {"http://evil.example"}}})
	var status *ErrStatus
	if !errors.As(err, &status) || status.Code != http.StatusForbidden {
		t.Errorf("got %v", err)
	}
}

// A peer that does not read costs a bounded amount of memory, and no one else
// has to wait for it.
func TestBacklogOfAPeerThatDoesNotRead(t *testing.T) {
	result := make(chan error, 1)
	url, ended := newServer(t, ServerOptions{OnConnect: func(s *Socket) {
		s.p.out.limit = 1 << 20
		chunk := strings.Repeat("x", 100<<10)
		for range 1000 {
			if err := s.Emit("x", chunk); err != nil {
				result <- err
				go s.Close()
				return
			}
		}
		result <- nil
	}})
	ws, _, err := websocket.Dial(t.Context(), url+"/?EIO=4&transport=websocket", &websocket.DialOptions{HTTPClient: ownClient(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow() // end of the test
	say(t.Context(), ws, "40")
	if err := waitFor(t, "the full queue", result); !errors.Is(err, ErrBacklog) {
		t.Errorf("got %v", err)
	}
	waitFor(t, "the server's side, though the client never reads", ended)
}

func TestBacklogOfAHandlerThatDoesNotReturn(t *testing.T) {
	release := make(chan struct{})
	url, ended := newServer(t, ServerOptions{
		OnConnect: func(s *Socket) { s.p.in.limit = 1 << 20 },
		OnEvent:   func(*Socket, string, []json.RawMessage, func(...any)) { <-release },
	})
	c := dial(t, url, Options{})
	chunk := strings.Repeat("x", 100_000)
	for c.Err() == nil {
		err := c.Emit(t.Context(), "x", chunk)
		if errors.Is(err, ErrBacklog) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	close(release)
	if err := waitFor(t, "the server's side", ended); !errors.Is(err, ErrBacklog) {
		t.Errorf("got %v", err)
	}
}

func TestServerShutdown(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended <- Serve(w, r.WithContext(ctx), ServerOptions{})
	}))
	defer srv.Close()
	c := dial(t, srv.URL, Options{})
	cancel()
	waitFor(t, "the client's end", c.Done())
	if err := waitFor(t, "the server's end", ended); !errors.Is(err, ErrClosed) {
		t.Errorf("server: %v", err)
	}
	if !errors.Is(c.Err(), ErrDisconnected) {
		t.Errorf("client: %v", c.Err())
	}
}

func TestCloseFromHandler(t *testing.T) {
	url, ended := newServer(t, ServerOptions{OnConnect: func(s *Socket) { s.Emit("bye") }}) // the client's test decides
	conn := make(chan *Conn, 1)
	c := dial(t, url, Options{OnEvent: func(string, []json.RawMessage, func(...any)) { (<-conn).Close() }})
	conn <- c
	waitFor(t, "the client's end", c.Done())
	if err := waitFor(t, "the server's end", ended); !errors.Is(err, ErrDisconnected) {
		t.Errorf("server: %v", err)
	}
}
