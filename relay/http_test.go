package relay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAuth(t *testing.T) {
	b := newBench(t)
	alice := b.signIn("alice")
	again := b.signIn("alice")
	bob := b.signIn("bob")
	id := alice.session("tag")
	if again.session("tag") != id {
		t.Error("a second token of the same key is another account")
	}
	if bob.session("tag") == id {
		t.Error("two keys share an account")
	}
	if parts := strings.Split(alice.token, "."); len(parts) != 3 || parts[0] != tokenHeader {
		t.Errorf("no EdDSA JWT: %s", alice.token)
	}

	std := base64.StdEncoding.EncodeToString
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	good := map[string]string{
		"publicKey": std(key.Public().(ed25519.PublicKey)), "challenge": std([]byte("c")), "signature": std(ed25519.Sign(key, []byte("c"))),
	}
	for name, wrong := range map[string]string{"publicKey": std([]byte("short")), "challenge": std([]byte("d")), "signature": "!"} {
		in := map[string]string{}
		for k, v := range good {
			in[k] = v
		}
		in[name] = wrong
		if status, body := b.do("POST", "/v1/auth", "", in); status != 401 || body["error"] != "Invalid signature" {
			t.Errorf("wrong %s: %d %v", name, status, body)
		}
		delete(in, name)
		if status, _ := b.do("POST", "/v1/auth", "", in); status != 400 {
			t.Errorf("no %s: %d", name, status)
		}
	}
}

func TestTokens(t *testing.T) {
	b := newBench(t)
	alice := b.signIn("alice")
	other := newBench(t).signIn("alice")
	parts := strings.Split(alice.token, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	flipped := []byte(alice.token)
	flipped[len(parts[0])+5] ^= 1
	for name, token := range map[string]string{
		"of another relay": other.token,
		"tampered":         string(flipped),
		"unsigned":         none + "." + parts[1] + ".",
		"other header":     none + "." + parts[1] + "." + parts[2],
		"no signature":     parts[0] + "." + parts[1],
		"nonsense":         "x",
		"dots":             "..",
	} {
		if status, body := b.do("GET", "/v1/sessions", token, nil); status != 401 || body["error"] != "Invalid token" {
			t.Errorf("token %s: %d %v", name, status, body)
		}
	}
	if status, body := b.do("GET", "/v1/sessions", "", nil); status != 401 || body["error"] != "Missing authorization header" {
		t.Errorf("no token: %d %v", status, body)
	}
}

func TestForeignHostsAreRefused(t *testing.T) {
	b := newBench(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(b.url, "http://"))
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 401, "localhost:" + port: 401, "LOCALHOST:" + port: 401, "[::1]:" + port: 401,
		"127.0.0.1": 403, "localhost:1": 403, "evil.example:" + port: 403, "127.0.0.1.evil.example:" + port: 403,
		"0.0.0.0:" + port: 403, "[::2]:" + port: 403, "": 403,
	} {
		for _, path := range []string{"/v1/sessions", "/v1/updates/?EIO=4&transport=websocket"} {
			req, err := http.NewRequest("GET", b.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			if host == "" {
				req.Host = "x:y:z"
			}
			resp, err := b.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			got := resp.StatusCode
			if strings.Contains(path, "updates") && got == http.StatusUpgradeRequired {
				got = 401 // let in, but it is no WebSocket
			}
			if got != want {
				t.Errorf("host %q, path %s: got %d, want %d", host, path, resp.StatusCode, want)
			}
			if len(resp.Header.Values("Access-Control-Allow-Origin")) != 0 {
				t.Error("a CORS header was sent")
			}
		}
	}
}

func TestUnknownPathsAreLogged(t *testing.T) {
	var log bytes.Buffer
	r, err := Open(Options{Path: filepath.Join(t.TempDir(), "relay.db"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := r.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, ln) }()
	b := &bench{T: t, url: "http://" + ln.Addr().String(), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, path := range []string{"/v1/kv?token=secret", "/v1/updates", "/v1/updates/x", "/v3/sessions", "/" + strings.Repeat("x", 1000)} {
		if status, _ := b.do("GET", path, "secret", nil); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := b.do("OPTIONS", "/v1/sessions", "", nil); status != 404 {
		t.Errorf("preflight: %d", status)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	got := log.String()
	if !strings.Contains(got, "path=/v1/kv") || strings.Contains(got, "secret") || strings.Contains(got, strings.Repeat("x", 300)) {
		t.Errorf("log: %s", got)
	}
}

func TestBodies(t *testing.T) {
	u := newBench(t).signIn("alice")
	for name, in := range map[string][]byte{
		"cut off":     []byte(`{"tag":"x"`),
		"not JSON":    []byte(`tag=x`),
		"empty":       {},
		"two values":  []byte(`{"tag":"x","metadata":"m"}{}`),
		"wrong type":  []byte(`{"tag":1,"metadata":"m"}`),
		"list":        []byte(`[]`),
		"no metadata": []byte(`{"tag":"x"}`),
		"null":        []byte(`null`),
		"long tag":    fmt.Appendf(nil, `{"tag":%q,"metadata":"m"}`, strings.Repeat("x", 40_000)),
	} {
		t.Run(name, func(t *testing.T) { u.fails(400, "POST", "/v1/sessions", in) })
	}
	req, err := http.NewRequest("POST", u.url+"/v1/sessions", strings.NewReader(`{"tag":"x","metadata":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	req.Header.Set("Content-Type", "text/plain")
	resp, err := u.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %d", resp.StatusCode)
	}
}

func TestListensOnLoopbackOnly(t *testing.T) {
	for addr, ok := range map[string]bool{
		"": true, "localhost:0": true, "127.0.0.2:0": true,
		"0.0.0.0:0": false, ":0": false, "192.0.2.1:0": false, "example.com:0": false, "nonsense": false,
	} {
		r, err := Open(Options{Path: filepath.Join(t.TempDir(), "relay.db"), Addr: addr})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := r.Listen(t.Context())
		if err == nil {
			ln.Close()
		} else if addr == "127.0.0.2:0" {
			ok = false // macOS has no such address
		}
		if (err == nil) != ok {
			t.Errorf("address %q: %v", addr, err)
		}
		r.Close()
	}
	r, err := Open(Options{Path: filepath.Join(t.TempDir(), "relay.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Serve(t.Context(), pretender{}); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("served on 0.0.0.0: %v", err)
	}
}

// pretender is a listener on all interfaces, without being one.
type pretender struct{ net.Listener }

func (pretender) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 1} }
func (pretender) Close() error   { return nil }

func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "relay.db")
	r, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, dir: 0o700} {
		if fi, err := os.Stat(p); err != nil || os.PathSeparator == '/' && fi.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v", p, fi.Mode(), err)
		}
	}
	if _, err := Open(Options{Path: path}); err == nil || !strings.Contains(err.Error(), ErrLocked.Error()) {
		t.Errorf("second open: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.db.update(nil); err != errClosed {
		t.Errorf("update after close: %v", err)
	}
	if _, err := r.Stats(); err != errClosed {
		t.Errorf("stats after close: %v", err)
	}
	if err := os.WriteFile(path+".txt", []byte("this is no database, and long enough to be looked at"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Path: path + ".txt"}); err == nil || !strings.Contains(err.Error(), "relay.db.txt") {
		t.Errorf("foreign file: %v", err)
	}
}

// What a restart must not change: data, numbers, tokens.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	var token, id string
	t.Run("before", func(t *testing.T) {
		u := benchAt(t, path).signIn("alice")
		token, id = u.token, u.session("tag")
		u.ok("POST", "/v3/sessions/"+id+"/messages", batch("a", "b"))
		u.ok("POST", "/v1/machines", object{"id": "m", "metadata": "meta"})
	})
	t.Run("after", func(t *testing.T) {
		u := user{benchAt(t, path), token}
		if got := rows(u.ok("POST", "/v3/sessions/"+id+"/messages", batch("c", "b"))); got != "2:b 3:c " {
			t.Errorf("got %s", got)
		}
		if got := rows(u.ok("GET", "/v3/sessions/"+id+"/messages?after_seq=0", nil)); got != "1:a 2:b 3:c " {
			t.Errorf("got %s", got)
		}
		s, err := u.relay.Stats()
		s.Bytes = 0
		if want := (Stats{Accounts: 1, Sessions: 1, Machines: 1, Messages: 3}); err != nil || s != want {
			t.Errorf("stats: %+v, %v", s, err)
		}
	})
}

func TestServeEndsSocketsAndRequests(t *testing.T) {
	r, err := Open(Options{Path: filepath.Join(t.TempDir(), "relay.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := r.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, ln) }()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	b := &bench{T: t, relay: r, url: "http://" + ln.Addr().String(), client: &http.Client{Transport: tr}}
	l := b.signIn("alice").connect(nil)
	if s, err := r.Stats(); err != nil || s.Sockets != 1 {
		t.Errorf("stats: %+v, %v", s, err)
	}
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve did not return")
	}
	<-l.Done()
}
