package uplink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// NewHTTPClient makes the one client that both HTTP and the WebSocket use, so
// that a proxy or a private CA serves both or none.
//
// proxy is a http, https or socks5 URL, "none", or empty for the environment's
// HTTPS_PROXY and HTTP_PROXY. NO_PROXY holds for either, and loopback is always
// reached directly. caFile names PEM certificates that are trusted beside the system's.
func NewHTTPClient(proxy, caFile string) (*http.Client, error) {
	choose, err := proxyFunc(proxy)
	if err != nil {
		return nil, err
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		if tlsConfig.RootCAs, err = loadCAs(caFile); err != nil {
			return nil, err
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 func(r *http.Request) (*url.URL, error) { return choose(r.URL) },
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:       tlsConfig,
			TLSHandshakeTimeout:   15 * time.Second,
			ForceAttemptHTTP2:     true, // an upgrade to WebSocket still goes over HTTP/1.1
			MaxIdleConnsPerHost:   8,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: time.Second,
			HTTP2: &http.HTTP2Config{
				// A connection that died in the machine's sleep is found out.
				SendPingTimeout: 15 * time.Second,
				PingTimeout:     15 * time.Second,
			},
		},
		// Followed, a POST would become a GET and the token would travel along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// proxyFunc chooses the proxy for a URL; nil is none.
func proxyFunc(proxy string) (func(*url.URL) (*url.URL, error), error) {
	switch proxy {
	case "":
		return func(u *url.URL) (*url.URL, error) {
			return http.ProxyFromEnvironment(&http.Request{URL: u})
		}, nil
	case "none":
		return func(*url.URL) (*url.URL, error) { return nil, nil }, nil
	}
	p, err := url.Parse(proxy)
	if err != nil {
		return nil, errors.New("server.proxy is not a URL") // its text may hold a password
	}
	switch p.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return nil, fmt.Errorf("server.proxy %q: scheme is not http, https or socks5", p.Redacted())
	}
	if p.Host == "" {
		return nil, fmt.Errorf("server.proxy %q: no host", p.Redacted())
	}
	except := os.Getenv("NO_PROXY")
	if except == "" {
		except = os.Getenv("no_proxy")
	}
	return func(u *url.URL) (*url.URL, error) {
		if bypasses(except, u) {
			return nil, nil
		}
		return p, nil
	}, nil
}

// bypasses says whether u is reached directly: loopback always, and what
// NO_PROXY names: "*", hosts (which cover their subdomains), addresses, and
// networks, each with an optional port.
func bypasses(noProxy string, u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && ip.IsLoopback() {
		return true
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	for entry := range strings.SplitSeq(noProxy, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if entry == "*" {
			return true
		}
		if block, perr := netip.ParsePrefix(entry); perr == nil {
			if err == nil && block.Contains(ip.Unmap()) {
				return true
			}
			continue
		}
		if h, p, perr := net.SplitHostPort(entry); perr == nil {
			if p != port {
				continue
			}
			entry = h
		}
		entry = strings.TrimPrefix(strings.TrimPrefix(strings.Trim(entry, "[]"), "*"), ".")
		if entry != "" && (host == entry || err != nil && strings.HasSuffix(host, "."+entry)) {
			return true
		}
	}
	return false
}

// ProxyFor says which proxy NewHTTPClient(proxy, …) uses for server, password
// masked; empty for none.
func ProxyFor(proxy, server string) (string, error) {
	choose, err := proxyFunc(proxy)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("server URL: %w", err)
	}
	p, err := choose(u)
	if err != nil || p == nil {
		return "", err
	}
	return p.Redacted(), nil
}

func loadCAs(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading server.ca_file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // some systems have none that can be listed
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server.ca_file %s holds no PEM certificate", path)
	}
	return pool, nil
}
