//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/cases"
	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// netScenario is what a server does to a daemon. It gets the case's log (its path in the home, and its lines), and leaves the
// machine with everything delivered that can be.
type netScenario func(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog)

// netScenarios are the servers' misdeeds, by the names of the cases that hold the logs.
var netScenarios = map[string]netScenario{
	"auth-revoked":      authRevoked,
	"half-open-socket":  halfOpenSocket,
	"long-outage-order": longOutage,
	"payload-too-large": payloadTooLarge,
	"rate-limit":        rateLimit,
	"session-deleted":   sessionDeleted,
}

func TestSharedNet(t *testing.T) { runNet(t, shared(t, "cases/net")) }
func TestOwnNet(t *testing.T)    { runNet(t, "testdata/net") }

func runNet(t *testing.T, dir string) {
	t.Parallel()
	all, err := cases.LoadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		play := netScenarios[c.Name]
		if play == nil {
			t.Errorf("no scenario for %s", c.Name)
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s := fakehappy.New()
			m := harness.NewWithFake(t, harness.Options{Bin: bin}, s)
			play(t, m, s, readNetLog(t, m, c))
			streams, err := m.Streams()
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range c.Check(streams, cases.Plain) {
				t.Error(problem)
			}
			m.Stop()
		})
	}
}

// netLog is the one log of a case, to be written piece by piece.
type netLog struct {
	t     *testing.T
	path  string
	id    string
	lines [][]byte
}

func readNetLog(t *testing.T, m *harness.Machine, c *cases.Case) netLog {
	t.Helper()
	for _, s := range c.Steps {
		if s.Op != "append" {
			continue
		}
		data, err := os.ReadFile(c.In(s.From))
		if err != nil {
			t.Fatal(err)
		}
		l := netLog{t: t, path: m.Path(s.Path), lines: bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))}
		l.lines[len(l.lines)-1] = append(l.lines[len(l.lines)-1], '\n')
		l.id = strings.TrimSuffix(filepath.Base(l.path), ".jsonl")
		return l
	}
	t.Fatal("the case appends nothing")
	return netLog{}
}

// as is the same log of another session.
func (l netLog) as(id string) netLog {
	out := netLog{t: l.t, id: id, path: filepath.Join(filepath.Dir(l.path), id+".jsonl")}
	for _, line := range l.lines {
		out.lines = append(out.lines, bytes.ReplaceAll(line, []byte(l.id), []byte(id)))
	}
	return out
}

// write appends lines from..to.
func (l netLog) write(from, to int) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Join(l.lines[from:to], nil)); err != nil {
		l.t.Fatal(err)
	}
}

func (l netLog) all() { l.write(0, len(l.lines)) }

// inflate is the log with as many bytes in its last answer.
func (l netLog) inflate(size int) (out [][]byte) {
	l.t.Helper()
	last := -1
	for i, line := range l.lines {
		if bytes.Contains(line, []byte(`"assistant"`)) {
			last = i
		}
	}
	for i, line := range l.lines {
		if i == last {
			var rec map[string]any
			if err := json.Unmarshal(line, &rec); err != nil {
				l.t.Fatal(err)
			}
			rec["message"].(map[string]any)["content"] = []any{map[string]any{"type": "text", "text": strings.Repeat("huge ", size/5)}}
			enc, err := json.Marshal(rec)
			if err != nil {
				l.t.Fatal(err)
			}
			line = append(enc, '\n')
		}
		out = append(out, line)
	}
	return out
}

// posts are the message requests since a moment.
func posts(s *fakehappy.Server, since time.Time) (out []fakehappy.Request) {
	for _, r := range s.Requests() {
		if r.IsMessages() && r.At.After(since) {
			out = append(out, r)
		}
	}
	return out
}

func until(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	if !harness.Wait(limit, cond) {
		t.Fatalf("%s did not happen within %v", what, limit)
	}
}

func delivered(s *fakehappy.Server, n int) func() bool {
	return func() bool {
		got := 0
		for _, ses := range s.Sessions() {
			got += len(ses.Messages)
		}
		return got >= n
	}
}

// authRevoked: the token is refused, and later a new one of the same account is stored.
func authRevoked(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog) {
	m.Start()
	log.write(0, 3)
	until(t, "the first delivery", 30*time.Second, delivered(s, 3))
	s.Revoke(fakehappy.Token("acc"))
	s.CloseSockets()
	since := time.Now()
	log.write(3, len(log.lines))
	until(t, "auth_required", 30*time.Second, func() bool {
		doc, err := m.Status()
		return err == nil && doc.Server.State == "auth_required" && doc.Queue.Messages > 0
	})
	time.Sleep(8 * time.Second)
	refused := 0
	for _, r := range s.Requests() {
		if r.At.After(since) {
			refused++
		}
	}
	if refused > 5 {
		t.Errorf("%d requests were refused: the daemon hammers", refused)
	}
	doc, err := m.Status()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(doc.Server.Hint, "happy auth login") {
		t.Errorf("status does not say what to do: %q", doc.Server.Hint)
	}
	m.Stop() // and a restart meanwhile changes nothing
	m.Start()
	const token = "bmV3.bmV3.bmV3"
	s.Accept(token, "acc")
	creds := *m.Credentials()
	creds.Token = token
	m.SaveCredentials(creds)
	m.Settle()
	for _, secret := range []string{token, fakehappy.Token("acc")} {
		if strings.Contains(m.Log(), secret) {
			t.Error("a token is in the log")
		}
	}
}

// halfOpenSocket: the socket goes dead without being closed; messages go on over HTTP, and a new socket is made.
func halfOpenSocket(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog) {
	if testing.Short() {
		t.Skip("silence is noticed after a minute")
	}
	m.Start()
	log.write(0, 3)
	until(t, "the socket", 30*time.Second, func() bool { return s.Sockets() == 1 })
	until(t, "the first delivery", 30*time.Second, delivered(s, 3))
	s.FreezeSockets()
	frozen := time.Now()
	log.write(3, len(log.lines))
	until(t, "delivery beside a dead socket", 30*time.Second, delivered(s, 8))
	sockets := len(s.SocketKinds())
	// The server announces pings every 15 s and gives up after 45 s more.
	until(t, "a new socket", 75*time.Second, func() bool { return len(s.SocketKinds()) > sockets })
	t.Logf("noticed after %v", time.Since(frozen).Round(time.Second))
	m.Settle()
}

// longOutage: the server refuses connections while a long log is written and the daemon is restarted.
func longOutage(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog) {
	m.Start()
	s.Down()
	down := time.Now()
	half := len(log.lines) / 2
	log.write(0, half)
	until(t, "offline", 30*time.Second, func() bool {
		doc, err := m.Status()
		return err == nil && doc.Server.State == "offline" && doc.Server.NextTry != nil && doc.Queue.Messages >= half/2
	})
	m.Kill()
	m.Start()
	log.write(half, len(log.lines))
	time.Sleep(max(0, 25*time.Second-time.Since(down)))
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	m.Settle()
	for _, r := range posts(s, down) {
		if r.Size > 1<<20+4096 {
			t.Errorf("a request of %d bytes", r.Size)
		}
	}
}

// payloadTooLarge: bodies over 64 KiB are refused, and one message alone is larger than that.
func payloadTooLarge(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog) {
	s.SetFault(fakehappy.TooLarge(64 << 10))
	m.Start()
	log.all()
	m.Settle()
	checkpoint := mustStreams(t, m)
	since := time.Now()
	// The huge one in a turn of its own, and a small one behind it, in another session with the same lines.
	other := log.as(log.id[:len(log.id)-4] + "f413")
	other.lines = other.inflate(200 << 10)
	other.all()
	m.Settle()
	refused := 0
	for _, r := range posts(s, since) {
		if r.Status == http.StatusRequestEntityTooLarge {
			refused++
		}
	}
	if refused == 0 || refused > 8 {
		t.Errorf("%d requests were refused as too large", refused)
	}
	all := byNative(t, mustStreams(t, m))
	for _, before := range checkpoint {
		if len(all[before.Native].Envs) != len(before.Envs) {
			t.Errorf("%s was changed by its neighbour", before.Native)
		}
	}
	envs := all[other.id].Envs
	if len(envs) == 0 || envs[len(envs)-1].Ev.T != protocol.TypeTurnEnd {
		t.Fatalf("the queue did not move on: %d envelopes", len(envs))
	}
	marked := false
	for _, e := range envs {
		if size := len(e.Ev.Text); e.Role == protocol.RoleAgent && size > 0 {
			marked = true
			t.Logf("in its place: %s of %d bytes, ending in %q", e.Ev.T, size, e.Ev.Text[max(0, size-120):])
		}
	}
	if !marked {
		t.Error("nothing stands in the place of the message that was too large")
	}
}

// rateLimit: 429 with a pause, then two 503s.
func rateLimit(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog) {
	s.SetFault(fakehappy.Sequence(fakehappy.Request.IsMessages,
		fakehappy.Fault{Status: http.StatusTooManyRequests, RetryAfter: "7"},
		fakehappy.Fault{Status: http.StatusServiceUnavailable},
		fakehappy.Fault{Status: http.StatusServiceUnavailable}))
	m.Start()
	log.all()
	log.as(log.id[:len(log.id)-4] + "f429").all() // the pause is the server's, not the session's
	m.Settle()
	all := posts(s, time.Time{})
	if len(all) < 4 || all[0].Status != http.StatusTooManyRequests {
		t.Fatalf("unexpected requests: %+v", all)
	}
	for _, r := range all[1:] {
		// The other session's request may have been on its way beside the one that was answered.
		if gap := r.At.Sub(all[0].At); gap > 100*time.Millisecond && gap < 6900*time.Millisecond {
			t.Errorf("asked again after %v", gap)
		}
	}
	if len(all) > 30 {
		t.Errorf("%d requests", len(all))
	}
}

// sessionDeleted: one session is deleted on the server while it grows; its neighbour must be complete.
func sessionDeleted(t *testing.T, m *harness.Machine, s *fakehappy.Server, log netLog) {
	doomed := log.as(log.id[:len(log.id)-4] + "f404")
	m.Start()
	doomed.write(0, 3)
	until(t, "the first delivery", 30*time.Second, delivered(s, 3))
	gone := s.Sessions()[0]
	s.Delete(gone.ID)
	doomed.write(3, len(doomed.lines))
	log.all()
	m.Settle()
	until(t, "session_gone", 30*time.Second, func() bool {
		ses, ok := m.Session(doomed.id)
		return ok && ses.State == "session_gone" && ses.Queued == 0
	})
	m.Kill()
	m.Start()
	doomed.write(1, 3) // it grows again
	m.Settle()
	for _, ses := range s.Sessions() {
		if ses.Tag == gone.Tag {
			t.Error("the deleted session was made again")
		}
	}
	tries := 0
	for _, r := range posts(s, time.Time{}) {
		if r.Session == gone.ID && r.Status == http.StatusNotFound {
			tries++
		}
	}
	if tries == 0 || tries > 2 {
		t.Errorf("the deleted session was tried %d times", tries)
	}
}

func mustStreams(t *testing.T, m *harness.Machine) []harness.Stream {
	t.Helper()
	all, err := m.Streams()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func byNative(t *testing.T, all []harness.Stream) map[string]harness.Stream {
	t.Helper()
	by, err := harness.ByNative(all)
	if err != nil {
		t.Fatal(err)
	}
	return by
}
