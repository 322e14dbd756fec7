package uplink

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/happyd/happyd/uplink/fakehappy"
)

// connectProxy is a forward proxy that sends every tunnel to one address,
// whatever name was asked for, and remembers the names.
type connectProxy struct {
	*httptest.Server
	mu    sync.Mutex
	names []string
	auth  []string
}

func newConnectProxy(t *testing.T, target string) *connectProxy {
	p := &connectProxy{}
	var tunnels sync.WaitGroup
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.names = append(p.names, r.Method+" "+r.Host)
		p.auth = append(p.auth, r.Header.Get("Proxy-Authorization"))
		p.mu.Unlock()
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		up, err := net.Dial("tcp", target)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		down, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			up.Close()
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n")
		tunnels.Go(func() { _, _ = io.Copy(up, buf); up.Close() })
		tunnels.Go(func() { _, _ = io.Copy(down, up); down.Close() })
	}))
	t.Cleanup(func() { p.Close(); tunnels.Wait() })
	return p
}

// TestProxyAndPrivateCAServeBothTransports: the server is reachable only
// through the proxy and has a certificate of a private CA.
func TestProxyAndPrivateCAServeBothTransports(t *testing.T) {
	fake := fakehappy.New()
	server := httptest.NewTLSServer(fake)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := newConnectProxy(t, server.Listener.Addr().String())
	through := strings.Replace(proxy.URL, "http://", "http://user:secret@", 1)

	client, err := NewHTTPClient(through, ca)
	if err != nil {
		t.Fatal(err)
	}
	// The certificate is made out to example.com, which the proxy resolves.
	r := newRig(t, fake, "https://example.com")
	r.client = client
	defer r.close()
	r.say("a", 3)
	r.start()
	r.up.Presence("a", Presence{Alive: true})
	if !fakehappy.Wait(10*time.Second, func() bool { return r.fake.Sockets() == 1 && r.scope.Queued("a").Count == 0 }) {
		t.Fatalf("not delivered: %+v", r.status())
	}
	r.wantTexts("a", 3)
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(proxy.names) < 2 {
		t.Errorf("the proxy saw %v", proxy.names)
	}
	for i, n := range proxy.names {
		if n != "CONNECT example.com:443" || proxy.auth[i] == "" {
			t.Errorf("the proxy saw %s", n)
		}
	}
	if shown, err := ProxyFor(through, r.url); err != nil || strings.Contains(shown, "secret") || !strings.Contains(shown, "user:xxxxx@") {
		t.Errorf("shown as %q, %v", shown, err)
	}
	if strings.Contains(r.logs.String(), "secret") {
		t.Error("the proxy's password is in the log")
	}
}

func TestUntrustedCertificate(t *testing.T) {
	fake := fakehappy.New()
	server := httptest.NewUnstartedServer(fake)
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	client, err := NewHTTPClient("none", "")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, fake, server.URL)
	r.client = client
	defer r.close()
	r.say("a", 1)
	r.start()
	if !fakehappy.Wait(10*time.Second, func() bool { return r.status().State == StateOffline }) {
		t.Fatalf("status %+v", r.status())
	}
	if st := r.status(); !strings.Contains(st.Reason, "certificate") || st.Queued != 1 {
		t.Errorf("status %+v", st)
	}
}

func TestBadTransportSettings(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]struct{ proxy, ca, want string }{
		"scheme":     {"ftp://u:hush@h:1", "", "scheme"},
		"no host":    {"http://", "", "no host"},
		"no URL":     {"http://u:hush@h:x:y", "", "not a URL"},
		"no file":    {"", filepath.Join(t.TempDir(), "none.pem"), "server.ca_file"},
		"empty file": {"", empty, "no PEM certificate"},
	} {
		_, err := NewHTTPClient(in.proxy, in.ca)
		if err == nil || !strings.Contains(err.Error(), in.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoProxy(t *testing.T) {
	for _, tt := range []struct {
		noProxy, url string
		direct       bool
	}{
		{"", "https://api.example.com", false},
		{"", "http://localhost:4277", true},
		{"", "http://127.0.0.1:4277", true},
		{"", "http://[::1]:4277", true},
		{"*", "https://api.example.com", true},
		{"example.com", "https://example.com", true},
		{"example.com", "https://api.example.com", true},
		{".example.com", "https://API.example.com.", true},
		{"*.example.com", "https://api.example.com", true},
		{"ample.com", "https://example.com", false},
		{" foo , example.com:443", "https://example.com", true},
		{"example.com:8443", "https://example.com", false},
		{"10.0.0.0/8", "https://10.1.2.3", true},
		{"10.0.0.0/8", "https://11.1.2.3", false},
		{"10.1.2.3", "https://10.1.2.3:99", true},
		{"[fd00::1]:80", "http://[fd00::1]", true},
		{",,", "https://example.com", false},
	} {
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := bypasses(tt.noProxy, u); got != tt.direct {
			t.Errorf("NO_PROXY=%q %s: direct %v", tt.noProxy, tt.url, got)
		}
	}
}

// TestOverTCP runs once on the real network stack, with a server that goes away.
func TestOverTCP(t *testing.T) {
	fake := fakehappy.New()
	addr, err := fake.Start()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, fake, addr)
	defer r.close()
	r.say("a", 120)
	r.start(func(o *Options) { o.Random = func() float64 { return 0.01 } })
	r.up.Presence("a", Presence{Alive: true})
	if !fakehappy.Wait(10*time.Second, func() bool { return r.scope.Queued("a").Count == 0 && fake.Sockets() == 1 }) {
		t.Fatalf("not delivered: %+v", r.status())
	}
	fake.Down()
	r.say("a", 80)
	time.Sleep(100 * time.Millisecond)
	if err := fake.Up(); err != nil {
		t.Fatal(err)
	}
	if !fakehappy.Wait(10*time.Second, func() bool { return r.scope.Queued("a").Count == 0 && fake.Sockets() == 1 }) {
		t.Fatalf("not delivered: %+v", r.status())
	}
	r.wantTexts("a", 200)
}
