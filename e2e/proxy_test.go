//go:build unix

package e2e

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// tunnel is a proxy that leads every CONNECT to one address, and remembers who asked for what.
type tunnel struct {
	target string
	mu     sync.Mutex
	asked  []string
	conns  []net.Conn
}

// ServeHTTP implements http.Handler.
func (p *tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("someone:hidden-word"))
	if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != want {
		http.Error(w, "refused", http.StatusProxyAuthRequired)
		return
	}
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		http.Error(w, "unreachable", http.StatusBadGateway)
		return
	}
	down, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		up.Close()
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, r.Host)
	p.conns = append(p.conns, up, down)
	p.mu.Unlock()
	_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(up, down); up.Close() }()
	go func() { _, _ = io.Copy(down, up); down.Close() }()
}

func (p *tunnel) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}

// TestProxyAndPrivateCA: a server that is reachable only through a proxy and has a certificate of a private CA, configured by
// the environment and by the file alone.
func TestProxyAndPrivateCA(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"file", "environment"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			fake := fakehappy.New()
			server := httptest.NewUnstartedServer(fake)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			p := &tunnel{target: server.Listener.Addr().String()}
			proxy := httptest.NewServer(p)
			t.Cleanup(proxy.Close)
			t.Cleanup(p.close)

			ca := t.TempDir() + "/ca.pem"
			block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			if err := os.WriteFile(ca, block, 0o600); err != nil {
				t.Fatal(err)
			}
			through := strings.Replace(proxy.URL, "http://", "http://someone:hidden-word@", 1)
			creds, secret := harness.Login(t, fakehappy.Token("acc"))
			// The certificate is made out to example.com; only the proxy knows where that is.
			o := harness.Options{Credentials: &creds, Secret: secret, URL: "https://example.com", Server: harness.Fake{Server: fake}}
			if by == "file" {
				o.Config = fmt.Sprintf("server: {url: 'https://example.com', proxy: '%s', ca_file: %s}\n", through, ca)
			} else {
				o.Env = []string{"HTTPS_PROXY=" + through, "NO_PROXY=localhost", "SSL_CERT_FILE=" + ca}
			}
			m := machine(t, o)
			m.Start()
			lines := talk("5e55e55e-0000-4000-8000-0000000000ca", "hello through the tunnel")
			appendFile(t, m.Path("home/.claude/projects/-home-me-work/5e55e55e-0000-4000-8000-0000000000ca.jsonl"), lines)
			until(t, "delivery and a socket", 60*time.Second, func() bool {
				return fake.Sockets() == 1 && delivered(fake, 4)()
			})
			m.Settle()
			byNative(t, mustStreams(t, m))
			p.mu.Lock()
			if len(p.asked) < 2 {
				t.Errorf("the proxy was asked for %v", p.asked)
			}
			for _, host := range p.asked {
				if host != "example.com:443" {
					t.Errorf("the proxy was asked for %s", host)
				}
			}
			p.mu.Unlock()
			if strings.Contains(m.Log(), "hidden-word") {
				t.Error("the proxy's password is in the log")
			}
			m.Stop()
		})
	}
}

// talk is the log of one short turn.
func talk(id, prompt string) string {
	line := func(kind, uuid, parent, extra, message string) string {
		return fmt.Sprintf(`{"parentUuid":%s,"isSidechain":false,"type":%q,%s"message":%s,"uuid":"%s","timestamp":"2026-10-01T10:00:00.000Z","userType":"external","entrypoint":"cli","cwd":"/home/me/work","sessionId":"%s","version":"2.1.332","gitBranch":"main"}`+"\n",
			parent, kind, extra, message, uuid, id)
	}
	u := func(n int) string { return fmt.Sprintf("%s%04d", id[:32], n) }
	return line("user", u(1), "null", `"promptSource":"typed","origin":{"kind":"human"},`, fmt.Sprintf(`{"role":"user","content":%q}`, prompt)) +
		line("assistant", u(2), `"`+u(1)+`"`, "", `{"id":"msg_`+id[32:]+`","type":"message","role":"assistant","model":"claude-opus-5-5","content":[{"type":"text","text":"Understood."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`)
}

func appendFile(t testing.TB, path, data string) {
	t.Helper()
	if err := os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.WriteString(f, data); err != nil {
		t.Fatal(err)
	}
}
