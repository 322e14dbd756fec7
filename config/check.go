package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the limits: below the lower ones nothing would move, above the
// upper one of batch_bytes a Happy server refuses the request.
const (
	minBufferMemory = 1 * MiB
	minBatchBytes   = 4 * KiB
	maxBatchBytes   = 64 * MiB
	minMaxQueue     = 1 * MiB
)

// validate checks what can be checked without looking at the disk.
func (c *Config) validate(env Env) []Problem {
	var problems []Problem
	fail := func(key, format string, args ...any) {
		problems = append(problems, Problem{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			hint := ""
			if best := Nearest(value, allowed); best != "" {
				hint = fmt.Sprintf(": did you mean %q?", best)
			}
			fail(key, "%q is not one of %s%s", value, strings.Join(allowed, ", "), hint)
		}
	}
	check := func(key string, err error) {
		if err != nil {
			fail(key, "%v", err)
		}
	}

	serverURL, err := normalServerURL(c.Server.URL)
	check("server.url", err)
	c.Server.URL = serverURL
	check("server.proxy", checkProxy(c.Server.Proxy))
	check("relay.listen", checkListen(c.Relay.Listen))

	oneOf("protocol.tool_names", c.Protocol.ToolNames, "provider", "spec")
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "auto", "text", "json")

	for _, list := range []struct {
		key   string
		globs []string
	}{{"projects.include", c.Projects.Include}, {"projects.exclude", c.Projects.Exclude}} {
		for i, g := range list.globs {
			check(fmt.Sprintf("%s[%d]", list.key, i), checkGlob(g, env.GOOS == "windows"))
		}
	}

	if c.Buffer.Memory < minBufferMemory {
		fail("buffer.memory", "%s is too little: at least %s", c.Buffer.Memory, minBufferMemory)
	}
	if c.Uplink.BatchBytes < minBatchBytes || c.Uplink.BatchBytes > maxBatchBytes {
		fail("uplink.batch_bytes", "%s is not between %s and %s", c.Uplink.BatchBytes, minBatchBytes, maxBatchBytes)
	}
	if lowest := max(minMaxQueue, c.Uplink.BatchBytes); c.Uplink.MaxQueue < lowest {
		fail("uplink.max_queue", "%s is too little: at least %s", c.Uplink.MaxQueue, lowest)
	}
	if within(c.StateDir, c.DataDir) {
		fail("data_dir", "%s lies in state_dir (%s), which may be deleted: choose a directory outside", c.DataDir, c.StateDir)
	}
	return problems
}

// normalServerURL checks a server's address and drops a trailing slash.
func normalServerURL(s string) (string, error) {
	if s == Embedded {
		return s, nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" && !strings.Contains(s, "//"):
		// The text of a parse error repeats the input, which may hold a password.
		return s, errors.New(`is neither "embedded" nor an address such as https://happy.example.org`)
	case u.Scheme != "http" && u.Scheme != "https":
		return s, fmt.Errorf("must begin with https:// or http://, not %s://", u.Scheme)
	case u.Hostname() == "":
		return s, errors.New("has no host name")
	case u.User != nil:
		return s, errors.New("must not hold a user or a password: the account is in account.credentials")
	case u.RawQuery != "" || u.Fragment != "":
		return s, errors.New("must not have a query or a fragment")
	}
	return strings.TrimRight(s, "/"), nil
}

func checkProxy(s string) error {
	if s == "" || s == "none" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return errors.New("is not an address such as http://proxy.example.org:3128")
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return nil
	}
	return fmt.Errorf("must begin with http://, https:// or socks5://, not %s://", u.Scheme)
}

// checkListen keeps the relay on the loopback interface: it speaks plain HTTP.
func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not an address such as %s", s, DefaultListen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q is not a port between 0 and 65535", port)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%q is not a loopback address: the embedded relay serves this machine only", host)
	}
	return nil
}

// within tells whether path is dir or lies below it, by name and, where they
// exist, by what the names stand for.
func within(dir, path string) bool {
	if lexicallyWithin(dir, path) {
		return true
	}
	realDir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for p := path; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return lexicallyWithin(realDir, real)
		}
		if p == filepath.Dir(p) {
			return false
		}
	}
}

func lexicallyWithin(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// Check looks at the files that the configuration names. The error lists what
// keeps happyd from working; the notes, what a user may want to know.
func (c Config) Check() (notes []string, err error) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	var problems []error
	if c.Server.CAFile != "" {
		problems = append(problems, checkCAFile(c.Server.CAFile))
	}
	if !c.Server.IsEmbedded() {
		if _, err := LoadCredentials(c.CredentialsPath()); err != nil {
			problems = append(problems, fmt.Errorf("account.credentials: %w", err))
		}
		if u, err := url.Parse(c.Server.URL); err == nil && u.Scheme == "http" && checkListen(net.JoinHostPort(u.Hostname(), "0")) != nil {
			note("server.url is plain http: contents are sealed, but anyone on the way can read the account's token")
		}
	}
	found := false
	for _, s := range []struct {
		name string
		Source
	}{{"claude", c.Sources.Claude}, {"codex", c.Sources.Codex}} {
		if !s.Enabled {
			continue
		}
		for _, p := range s.Paths {
			switch info, err := os.Stat(p); {
			case errors.Is(err, fs.ErrNotExist):
				note("sources.%s: %s does not exist yet; happyd waits for it", s.name, p)
			case err != nil:
				problems = append(problems, fmt.Errorf("sources.%s: %w", s.name, err))
			case !info.IsDir():
				problems = append(problems, fmt.Errorf("sources.%s: %s is not a directory", s.name, p))
			default:
				found = true
			}
		}
	}
	if !found {
		note("no agent's home directory was found: there is nothing to mirror yet")
	}
	return notes, errors.Join(problems...)
}

func checkCAFile(path string) error {
	pem, err := readBounded(path)
	if err != nil {
		return fmt.Errorf("server.ca_file: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return fmt.Errorf("server.ca_file: %s holds no PEM certificate", path)
	}
	return nil
}
