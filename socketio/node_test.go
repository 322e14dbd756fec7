package socketio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/happyd/happyd/internal/nodetest"
)

// official is a running npm socket.io server.
type official struct {
	cmd  *exec.Cmd
	port string
}

func (o official) url() string { return "http://127.0.0.1:" + o.port }

// startOfficial runs the official server; its stdin ends with the test, and
// with it the server.
func startOfficial(t *testing.T, options string) official {
	t.Helper()
	cmd := exec.Command("node", "socketio_server.mjs")
	cmd.Dir = nodetest.Dir(t)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill() // it may be gone already
		cmd.Wait()         // killed on purpose
	})
	fmt.Fprintln(in, options)
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- strings.TrimSpace(line)
	}()
	port := waitFor(t, "the official server", lines)
	if port == "" {
		t.Fatal("the official server did not start")
	}
	return official{cmd, port}
}

var good = map[string]any{"token": "good", "clientType": "user-scoped"}

func TestClientAgainstOfficialServer(t *testing.T) {
	o := startOfficial(t, `{"pingInterval":200,"pingTimeout":30000}`)

	for token, want := range map[string]ErrConnect{
		"bad":       {Message: "Invalid authentication token"},
		"":          {Message: "Missing authentication token"},
		"with data": {Message: "Invalid authentication token", Data: []byte(`{"code":7}`)},
	} {
		_, err := Dial(t.Context(), o.url(), Options{Auth: map[string]any{"token": token}, HTTPClient: ownClient(t)})
		var got *ErrConnect
		if !errors.As(err, &got) || got.Message != want.Message || string(got.Data) != string(want.Data) {
			t.Errorf("token %q: %v", token, err)
		}
	}

	pushed := make(chan json.RawMessage, 2000)
	c := dial(t, o.url(), Options{Auth: good, OnEvent: func(name string, args []json.RawMessage, ack func(...any)) {
		switch name {
		case "question":
			ack(map[string]any{"answer": args[0]})
		case "pushed":
			pushed <- args[0]
		}
	}})
	call := func(event string, args ...any) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		got, err := c.Call(ctx, event, args...)
		if err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		return text(got)
	}
	if got := call("auth"); got != `[{"token":"good","clientType":"user-scoped"}]` && got != `[{"clientType":"user-scoped","token":"good"}]` {
		t.Errorf("auth arrived as %s", got)
	}
	if got, want := call("echo", "\u2028\x00\U0001F600", 1, nil), `["\u2028\u0000😀",1,null]`; got != want {
		t.Errorf("echo: got %s, want %s", got, want)
	}
	if got := call("ask", "why"); got != `[{"answer":"why"}]` {
		t.Errorf("a question of the server: %s", got)
	}
	if got := call("binary"); got != "[]" {
		t.Errorf("with a binary packet in between: %s", got)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if got, err := c.Call(t.Context(), "echo", i); err != nil || text(got) != fmt.Sprintf("[%d]", i) {
				t.Errorf("call %d: %s, %v", i, text(got), err)
			}
		})
	}
	wg.Wait()
	if err := c.Emit(t.Context(), "push", 1000); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if got := string(waitFor(t, "a pushed event", pushed)); got != fmt.Sprint(i) {
			t.Fatalf("pushed event %d is %s", i, got)
		}
	}
	call("big", 5<<20)
	if got := waitFor(t, "the big frame", pushed); len(got) != 5<<20+2 {
		t.Errorf("5 MiB came as %d bytes", len(got))
	}
	if err := c.Emit(t.Context(), "echo", strings.Repeat("x", 1_000_001)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("above maxPayload: %v", err)
	}
	begin := c.LastSeen()
	time.Sleep(time.Second) // several pings
	if c.Err() != nil || !c.LastSeen().After(begin) {
		t.Errorf("after a second of pings: %v, last seen %v ago", c.Err(), time.Since(c.LastSeen()))
	}

	c.Close()
	c = dial(t, o.url(), Options{Auth: good})
	if got := call("goodbyes"); got != `[["client namespace disconnect"]]` {
		t.Errorf("the server took the goodbye as %s", got)
	}
	if err := c.Emit(t.Context(), "kick"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the kick", c.Done())
	if !errors.Is(c.Err(), ErrDisconnected) {
		t.Errorf("kicked out with %v", c.Err())
	}
}

func TestOfficialServerRestarts(t *testing.T) {
	o := startOfficial(t, `{}`)
	c := dial(t, o.url(), Options{Auth: good})
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end", c.Done())
	if c.Err() == nil {
		t.Error("no reason")
	}
	o.cmd.Wait() // killed on purpose
	if _, err := Dial(t.Context(), o.url(), Options{Auth: good, HTTPClient: ownClient(t)}); err == nil {
		t.Error("connected to a dead port")
	}
	startOfficial(t, fmt.Sprintf(`{"port":%s}`, o.port))
	c = dial(t, o.url(), Options{Auth: good})
	if _, err := c.Call(t.Context(), "echo"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestServerAgainstOfficialClient(t *testing.T) {
	nodetest.Dir(t)
	var mu sync.Mutex
	ids := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, drop := context.WithCancel(r.Context())
		defer drop()
		Serve(w, r.WithContext(ctx), ServerOptions{ // every way to end is provoked here
			PingInterval: 100 * time.Millisecond,
			PingTimeout:  30 * time.Second,
			Auth: func(_ context.Context, s *Socket) error {
				if !strings.Contains(string(s.Auth()), `"token":"good"`) {
					return errors.New("no entry")
				}
				return nil
			},
			OnConnect: func(s *Socket) {
				mu.Lock()
				defer mu.Unlock()
				ids[s.ID()] = true
			},
			OnEvent: func(s *Socket, name string, args []json.RawMessage, ack func(...any)) {
				switch name {
				case "auth":
					ack(s.Auth())
				case "echo":
					ack(args[0])
				case "ask":
					answer, err := s.Call(ctx, "question", args[0])
					if err != nil {
						t.Error(err)
						return
					}
					ack(answer[0])
				case "big":
					s.Emit("pushed", strings.Repeat("x", 5<<20)) // the client's report shows it
				case "drop":
					drop()
				case "kick":
					s.Close()
				}
			},
		})
	}))
	defer srv.Close()

	var seen map[string]any
	if err := json.Unmarshal(nodetest.Run(t, "socketio_client.mjs", fmt.Appendf(nil, `{"url":%q}`, srv.URL)), &seen); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if id, _ := seen["id"].(string); !ids[id] {
		t.Errorf("the client calls itself %q", id)
	}
	mu.Unlock()
	delete(seen, "id")
	got, _ := json.Marshal(seen)
	expected := map[string]any{
		"refused":             "no entry",
		"namespace":           "Invalid namespace",
		"auth":                map[string]any{"token": "good", "clientType": "user-scoped"},
		"echo":                map[string]any{"text": "\u2028\x00\U0001F600", "list": []any{1, nil, true}},
		"ask":                 map[string]any{"answer": "why"},
		"acks":                true,
		"big":                 5 << 20,
		"connectedAfterPings": true,
		"drop":                "transport close",
		"cameBack":            "back",
		"oversize":            "transport close",
		"kick":                "io server disconnect",
		"active":              false,
	}
	if want, _ := json.Marshal(expected); string(got) != string(want) {
		t.Errorf("the official client saw\n%s\nwant\n%s", got, want)
	}
}
