package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/happyd/happyd/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server until the test's end or until stop.
func serve(t *testing.T, dir string, opts Options) (stop func()) {
	t.Helper()
	if opts.Hub == nil {
		opts.Hub = new(Hub)
	}
	if opts.Status == nil {
		opts.Status = func(context.Context) (StatusDoc, error) { return StatusDoc{Version: "test"}, nil }
	}
	s, err := Listen(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Serve does not return")
		}
	}
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func text(id int, s string) protocol.Envelope {
	return protocol.Envelope{
		ID: fmt.Sprintf("e%023d", id), Time: int64(id), Role: protocol.RoleUser,
		Ev: protocol.Event{T: protocol.TypeText, Text: s},
	}
}

func TestStatus(t *testing.T) {
	dir := t.TempDir()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := StatusDoc{
		Version: "1", PID: 7, StartedAt: since, Now: since, StateDir: dir,
		Server:   ServerStatus{URL: "http://x", State: ServerOffline, Since: &since, NextTry: &since, Hint: "wait"},
		Sessions: []SessionStatus{{ID: "s", Turn: "open", Files: []FileStatus{{Path: "/f", Offset: 3, Size: 10}, {Path: "/g", Offset: 9, Size: 4}}}},
		Counters: map[string]int64{"skipped.bad_json": 2},
	}
	serve(t, dir, Options{Status: func(context.Context) (StatusDoc, error) { return want, nil }})
	got, err := dial(t, dir).Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if b := got.Sessions[0].Behind(); b != 7 {
		t.Errorf("behind = %d", b)
	}
}

func TestStatusError(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, Options{Status: func(context.Context) (StatusDoc, error) { return StatusDoc{}, errors.New("no luck") }})
	_, err := dial(t, dir).Status(context.Background())
	if err == nil || !strings.Contains(err.Error(), "the daemon says: collecting the status: no luck") {
		t.Errorf("got %v", err)
	}
}

func TestNoDaemon(t *testing.T) {
	for name, dir := range map[string]string{
		"no directory":   filepath.Join(t.TempDir(), "absent"),
		"long directory": filepath.Join(t.TempDir(), strings.Repeat("x", 150)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dial(dir)
			var nr *NotRunningError
			if !errors.As(err, &nr) || !strings.Contains(err.Error(), "happyd run") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSocketIsPrivateStaleOnesAreReplacedAndItGoesAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// A daemon that was killed leaves its socket behind.
	path := filepath.Join(dir, socketName)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := Dial(dir); err == nil {
		t.Fatal("a stale socket answers")
	}

	stop := serve(t, dir, Options{})
	if runtime.GOOS != "windows" {
		for p, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
			info, err := os.Stat(p)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: mode %v, %v", p, info.Mode().Perm(), err)
			}
		}
	}
	if _, err := Listen(dir, Options{}); err == nil || !strings.Contains(err.Error(), "another happyd") {
		t.Errorf("a second daemon got the socket: %v", err)
	}
	dial(t, dir)
	stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestSharedDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil || runtime.GOOS == "windows" {
		t.Skip("no sticky directories here")
	}
	if _, err := Listen(dir, Options{}); err == nil || !strings.Contains(err.Error(), "users share") {
		t.Errorf("got %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the mode was changed: %v, %v", info.Mode(), err)
	}
}

func TestLongStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	t.Setenv("TMPDIR", "/tmp")
	stop := serve(t, dir, Options{})
	if _, err := dial(t, dir).Status(context.Background()); err != nil {
		t.Error(err)
	}
	private := filepath.Dir(socketPath(dir))
	stop()
	if _, err := os.Stat(private); !os.IsNotExist(err) {
		t.Errorf("left behind: %s", private)
	}
	if _, err := Dial(dir); err == nil {
		t.Error("still answers")
	}
}

func TestTailReplaysThenFollows(t *testing.T) {
	dir, hub := t.TempDir(), new(Hub)
	for i := range 10 {
		hub.Publish([]string{"even", "odd"}[i%2], "claude", text(i, "a<b"))
	}
	serve(t, dir, Options{Hub: hub})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ids []int64
	err := dial(t, dir).Tail(ctx, TailOptions{Last: 3, Session: "odd"}, func(l TailLine, raw []byte) error {
		if l.Env == nil || l.Provider != "claude" || l.Session != "odd" || !bytes.HasSuffix(raw, []byte("\n")) {
			t.Errorf("line %s", raw)
			return io.ErrUnexpectedEOF
		}
		ids = append(ids, l.Env.Time)
		if len(ids) == 3 {
			hub.Publish("even", "claude", text(10, "x"))
			hub.Publish("odd", "claude", text(11, "x"))
		}
		if len(ids) == 4 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Tail: %v", err)
	}
	if want := []int64{5, 7, 9, 11}; !reflect.DeepEqual(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

func TestTailEndsWithTheDaemonOrTheCallback(t *testing.T) {
	dir, hub := t.TempDir(), new(Hub)
	hub.Publish("s", "claude", text(1, "x"))
	stop := serve(t, dir, Options{Hub: hub})
	c := dial(t, dir)

	mine := errors.New("enough")
	if err := c.Tail(context.Background(), TailOptions{Last: 1}, func(TailLine, []byte) error { return mine }); err != mine {
		t.Errorf("got %v", err)
	}
	err := c.Tail(context.Background(), TailOptions{Last: 1}, func(TailLine, []byte) error {
		go stop()
		return nil
	})
	if err != io.EOF {
		t.Errorf("got %v", err)
	}
	stop()
}

func TestTailRefusesNonsense(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, Options{})
	err := dial(t, dir).Tail(context.Background(), TailOptions{Last: -1}, func(TailLine, []byte) error { return nil })
	if err == nil || !strings.Contains(err.Error(), `n="-1"`) {
		t.Errorf("got %v", err)
	}
}

func TestSlowReaderMissesLinesAndIsTold(t *testing.T) {
	hub := new(Hub)
	r := hub.subscribe("", 0)
	for i := range readerLines + 5 {
		hub.Publish("s", "claude", text(i, "x"))
	}
	<-r.wake
	lines, missed := hub.take(r)
	if len(lines) != readerLines || missed != 5 {
		t.Errorf("%d lines, %d missed", len(lines), missed)
	}
	big := strings.Repeat("y", readerBytes*3/4)
	hub.Publish("s", "claude", text(1, big))
	hub.Publish("s", "claude", text(2, big))
	if lines, missed = hub.take(r); len(lines) != 1 || missed != 1 {
		t.Errorf("%d lines, %d missed by size", len(lines), missed)
	}

	hub.unsubscribe(r)
	hub.Publish("s", "claude", text(3, "x"))
	if lines, _ = hub.take(r); len(lines) != 0 {
		t.Error("a gone reader got a line")
	}
}

func TestMissedNoteOnTheWire(t *testing.T) {
	dir, hub := t.TempDir(), new(Hub)
	serve(t, dir, Options{Hub: hub})
	want := readerLines + 7
	seen, stop := 0, errors.New("stop")
	publish := func() {
		for i := range want {
			hub.Publish("s", "claude", text(i, strings.Repeat("x", 4096)))
		}
	}
	hub.Publish("s", "claude", text(0, "first"))
	err := dial(t, dir).Tail(context.Background(), TailOptions{Last: 1}, func(l TailLine, _ []byte) error {
		switch {
		case l.Missed > 0:
			seen += l.Missed
		case l.Env.Ev.Text == "first":
			publish() // while nobody reads the connection
			return nil
		default:
			seen++
		}
		if seen >= want {
			return stop
		}
		return nil
	})
	if err != stop || seen != want {
		t.Errorf("%d of %d lines are accounted for, %v", seen, want, err)
	}
}

func TestRingIsBounded(t *testing.T) {
	hub := new(Hub)
	for i := range ringLines * 3 {
		hub.Publish("s", "claude", text(i, "x"))
	}
	if len(hub.ring) != ringLines {
		t.Errorf("%d lines", len(hub.ring))
	}
	for i := range 20 {
		hub.Publish("s", "claude", text(i, strings.Repeat("z", ringBytes/4)))
	}
	if hub.bytes > ringBytes || len(hub.ring) > 4 || len(hub.ring) == 0 {
		t.Errorf("%d lines, %d bytes", len(hub.ring), hub.bytes)
	}
	hub.Publish("s", "claude", text(1, strings.Repeat("z", 2*ringBytes)))
	if len(hub.ring) != 0 || hub.bytes != 0 {
		t.Errorf("a line larger than the ring is kept: %d lines, %d bytes", len(hub.ring), hub.bytes)
	}
}

func TestIngest(t *testing.T) {
	dir := t.TempDir()
	var got bytes.Buffer
	serve(t, dir, Options{Ingest: func(_ context.Context, provider string, body io.Reader) error {
		if provider != "codex" {
			return ErrUnknownProvider
		}
		_, err := io.Copy(&got, body)
		return err
	}})
	c := dial(t, dir)
	want := strings.Repeat("{}\n", 100_000)
	if err := c.Ingest(context.Background(), "codex", strings.NewReader(want)); err != nil || got.String() != want {
		t.Errorf("%v, %d of %d bytes", err, got.Len(), len(want))
	}
	for provider, message := range map[string]string{
		"gemini": `unknown provider "gemini"`,
		"../x":   "malformed provider name",
		"A":      "malformed provider name",
	} {
		if err := c.Ingest(context.Background(), provider, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", provider, err)
		}
	}
}

func TestIngestNotOffered(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, Options{})
	err := dial(t, dir).Ingest(context.Background(), "codex", strings.NewReader(""))
	if err == nil || !strings.Contains(err.Error(), "takes no live streams") {
		t.Errorf("got %v", err)
	}
}

func TestStopDoesNotWaitForAnOpenStream(t *testing.T) {
	dir := t.TempDir()
	started, ended := make(chan struct{}), make(chan error, 1)
	stop := serve(t, dir, Options{Ingest: func(_ context.Context, _ string, body io.Reader) error {
		close(started)
		_, err := io.Copy(io.Discard, body)
		ended <- err
		return err
	}})
	r, w := io.Pipe()
	defer w.Close()
	sent := make(chan error, 1)
	go func() { sent <- dial(t, dir).Ingest(context.Background(), "codex", r) }()
	<-started
	stop()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a cut stream looks complete")
		}
	default:
		t.Error("Serve returned before the callback")
	}
	w.Close()
	if err := <-sent; err == nil {
		t.Error("the client does not know that its stream was cut")
	}
}

func TestPeerIsKnown(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("the system does not tell")
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	uid, known, err := peerUID(s.(*net.UnixConn))
	if err != nil || !known || int(uid) != os.Getuid() || !allowed(uid) {
		t.Errorf("uid %d, %v, %v", uid, known, err)
	}
	if allowed(uint32(os.Geteuid()) + 4242) {
		t.Error("strangers are allowed")
	}
}

func TestTailLineJSON(t *testing.T) {
	env := text(1, "x")
	bare := `{"env":{"id":"e00000000000000000000001","time":1,"role":"user","ev":{"t":"text","text":"x"}}}`
	for want, l := range map[string]TailLine{
		`{"missed":3}`: {Missed: 3},
		bare:           {Env: &env},
		`{"session":"s","provider":"codex","env":{"id":"e00000000000000000000001","time":1,"role":"user","ev":{"t":"text","text":"x"}}}`: {Session: "s", Provider: "codex", Env: &env},
	} {
		got, err := json.Marshal(l)
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v\nwant %s", got, err, want)
		}
		if l.Env == nil {
			continue
		}
		if got, err = encode(l.Session, l.Provider, *l.Env); err != nil || string(got) != want+"\n" {
			t.Errorf("got %s, %v\nwant %s", got, err, want)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	hub := new(Hub)
	env := text(1, strings.Repeat("some words ", 50))
	b.ReportAllocs()
	for b.Loop() {
		hub.Publish("s", "claude", env)
	}
}
