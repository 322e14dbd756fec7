package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/control"
	"github.com/happyd/happyd/protocol"
)

func newTestApp(t *testing.T) (a *app, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &app{
		stdin: strings.NewReader(""), stdout: stdout, stderr: stderr,
		env: config.HomeEnv(t.TempDir()), runDaemon: runDaemon,
	}, stdout, stderr
}

// at is the time of the test envelopes, in the local zone as tail shows it.
var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local)

func agent(subagent string, ev protocol.Event) *protocol.Envelope {
	return &protocol.Envelope{ID: "e1", Time: at.UnixMilli(), Role: protocol.RoleAgent, Turn: "t1", Subagent: subagent, Ev: ev}
}

func user(text string) *protocol.Envelope {
	return &protocol.Envelope{ID: "e1", Time: at.UnixMilli(), Role: protocol.RoleUser, Ev: protocol.Event{T: protocol.TypeText, Text: text}}
}

// conversation is a turn with a subagent in a subagent.
func conversation() []*protocol.Envelope {
	spawn := func(subagent, call, child string) *protocol.Envelope {
		return agent(subagent, protocol.Event{T: protocol.TypeToolStart, Call: call, Name: "Agent", Title: "Look into it",
			Args: json.RawMessage(`{"sessionSubagent":"` + child + `"}`)})
	}
	text := func(subagent, s string) *protocol.Envelope {
		return agent(subagent, protocol.Event{T: protocol.TypeText, Text: s})
	}
	return []*protocol.Envelope{
		user("Please look\n\nat this\nand that"),
		agent("", protocol.Event{T: protocol.TypeTurnStart}),
		agent("", protocol.Event{T: protocol.TypeText, Text: "Hm.", Thinking: true}),
		spawn("", "c1", "child"),
		agent("child", protocol.Event{T: protocol.TypeStart, Title: "Look"}),
		spawn("child", "c2", "grandchild"),
		text("grandchild", "deep \x1b[31mred\u202e"),
		agent("grandchild", protocol.Event{T: protocol.TypeStop}),
		agent("child", protocol.Event{T: protocol.TypeToolEnd, Call: "c2"}),
		text("stranger", "unknown depth"),
		agent("", protocol.Event{T: protocol.TypeToolStart, Call: "c3", Name: "Edit", Title: "Edit a.go", Args: json.RawMessage(`[1]`)}),
		agent("", protocol.Event{T: protocol.TypeToolEnd, Call: "c3"}),
		agent("", protocol.Event{T: protocol.TypeToolEnd, Call: "c0"}),
		agent("", protocol.Event{T: protocol.TypeService, Text: "compacted"}),
		agent("", protocol.Event{T: protocol.TypeFile, Name: "a.png", Size: 2048}),
		agent("", protocol.Event{T: protocol.TypeTurnEnd, Status: protocol.StatusFailed}),
	}
}

func TestTailView(t *testing.T) {
	var out bytes.Buffer
	v := &tailView{out: &out}
	for _, e := range conversation() {
		if err := v.show(control.TailLine{Session: "0123456789", Env: e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.show(control.TailLine{Missed: 1}); err != nil {
		t.Fatal(err)
	}
	if err := v.show(control.TailLine{}); err != nil {
		t.Fatal(err)
	}
	const head = "05:06:07 01234567 "
	want := head + "> Please look  (+3 lines)\n" +
		head + "┬ turn begins\n" +
		head + "~ Hm.\n" +
		head + "▸ Agent: Look into it\n" +
		head + "  ┬ subagent begins: Look\n" +
		head + "  ▸ Agent: Look into it\n" +
		head + "    ● deep \ufffd[31mred\ufffd\n" +
		head + "    ┴ subagent ends\n" +
		head + "  ✓ Agent: Look into it\n" +
		head + "  ● unknown depth\n" +
		head + "▸ Edit a.go\n" +
		head + "✓ Edit a.go\n" +
		head + "✓ a tool call ends\n" +
		head + "! compacted\n" +
		head + "> [a.png, 2.0 KiB]\n" +
		head + "┴ turn failed\n" +
		"… 1 event left out: this terminal was too slow\n" +
		"… an event that this version of happyd does not know\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if len(v.calls) != 1 { // the first spawning call is still running
		t.Errorf("remembers %d calls", len(v.calls))
	}
}

func TestTailViewOnATerminal(t *testing.T) {
	var out bytes.Buffer
	v := &tailView{out: &out, colour: true, width: func() int { return 40 }}
	if err := v.show(control.TailLine{Session: "s", Env: user(strings.Repeat("ä", 100))}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), styleCyan+"> ää") || !strings.Contains(out.String(), "…"+styleReset) {
		t.Errorf("got %q", out.String())
	}
}

func TestStatusView(t *testing.T) {
	ago := func(d time.Duration) *time.Time { x := at.Add(-d); return &x }
	next := at.Add(30 * time.Second)
	doc := control.StatusDoc{
		Version: "1.0", PID: 42, StartedAt: *ago(2 * time.Hour),
		Server:  control.ServerStatus{URL: "https://h.example", State: control.ServerOffline, Since: ago(90 * time.Second), NextTry: &next, Error: "connection refused", Hint: "check the network"},
		Socket:  control.SocketStatus{State: "closed"},
		Account: control.AccountStatus{State: "ready", ID: "ab12", Variant: "dataKey", Credentials: "/home/u/.happy/access.key"},
		Sources: []control.SourceStatus{{Provider: "claude", Root: "/home/u/.claude", State: control.SourceWatching, Files: 2, Sessions: 1}},
		Sessions: []control.SessionStatus{
			{ID: "quiet-one", Provider: "claude", State: control.SessionEnded, Turn: "closed"},
			{ID: "0123456789", Provider: "claude", State: control.SessionActive, Turn: "open", Queued: 3, LastAckedSeq: 17, Orphans: 2,
				Parked: 1, ParkedWhy: "too large", Hint: "nothing to do",
				Files: []control.FileStatus{
					{Path: "/home/u/.claude/projects/p/0123456789.jsonl", Offset: 100, Size: 150, Skipped: 1},
					{Path: "/home/u/.claude/projects/p/0123456789/subagents/agent-\x1b[1m.jsonl", Offset: 7, Size: 7},
				}},
		},
		Queue:    control.QueueStatus{Messages: 3, Bytes: 2048, Limit: 1 << 30, Full: true},
		Orphans:  control.OrphanStatus{Messages: 2, Agents: 1, Bytes: 512, Oldest: ago(3 * time.Minute)},
		Counters: map[string]int64{"unknown.claude.zap": 5, "skipped.bad_json": 1},
	}
	var out bytes.Buffer
	if err := (statusView{home: "/home/u", now: at}).write(&out, doc); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "status.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestStatusHidesQuietSessionsBeyondAScreenful(t *testing.T) {
	var doc control.StatusDoc
	for i := range 40 {
		at := at.Add(time.Duration(i) * time.Minute)
		s := control.SessionStatus{ID: "s", State: control.SessionEnded, LastRecord: &at}
		if i < 20 {
			s.Queued = 1
		}
		doc.Sessions = append(doc.Sessions, s)
	}
	v := statusView{now: at}
	if shown, hidden := v.choose(doc.Sessions); len(shown) != 20 || hidden != 20 || shown[0].Queued == 0 {
		t.Errorf("%d shown, %d hidden", len(shown), hidden)
	}
	v.all = true
	if shown, hidden := v.choose(doc.Sessions); len(shown) != 40 || hidden != 0 || !shown[20].LastRecord.After(*shown[39].LastRecord) {
		t.Errorf("%d shown, %d hidden", len(shown), hidden)
	}
}

func TestStatusAndTailAgainstADaemon(t *testing.T) {
	a, stdout, stderr := newTestApp(t)
	hub := new(control.Hub)
	for _, e := range conversation() {
		hub.Publish("0123456789", "claude", *e)
	}
	server, err := control.Listen(config.Default(a.env).StateDir, control.Options{Hub: hub,
		Status: func(context.Context) (control.StatusDoc, error) {
			return control.StatusDoc{Version: "9.9", Sessions: []control.SessionStatus{
				{ID: "0123456789"}, {ID: "0199999999"},
			}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	if code := a.run(ctx, []string{"status"}); code != exitOK || !strings.Contains(stdout.String(), "9.9") {
		t.Errorf("status: %d, %s%s", code, stdout, stderr)
	}
	stdout.Reset()
	var doc control.StatusDoc
	if code := a.run(ctx, []string{"status", "--json"}); code != exitOK || json.Unmarshal(stdout.Bytes(), &doc) != nil || doc.Version != "9.9" {
		t.Errorf("status --json: %d, %s%s", code, stdout, stderr)
	}

	for prefix, want := range map[string]string{"01": "2 sessions' ids begin", "x": "no session's id begins"} {
		stderr.Reset()
		if code := a.run(ctx, []string{"tail", "--session", prefix}); code != exitError || !strings.Contains(stderr.String(), want) {
			t.Errorf("tail --session %s: %d, %s", prefix, code, stderr)
		}
	}

	// Following ends with the user's signal, which is no error.
	tail, stop := context.WithCancel(ctx)
	defer stop()
	out := &stoppingWriter{stop: stop, after: 2}
	a.stdout = out
	if code := a.run(tail, []string{"tail", "-s", "012", "-n", "2", "--json"}); code != exitOK {
		t.Errorf("tail: %d, %s", code, stderr)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], `"turn-end"`) {
		t.Errorf("tail printed %s", out.String())
	}
}

// stoppingWriter ends the command that writes to it after some lines.
type stoppingWriter struct {
	bytes.Buffer
	stop  func()
	after int
}

func (w *stoppingWriter) Write(p []byte) (int, error) {
	if w.after--; w.after == 0 {
		w.stop()
	}
	return w.Buffer.Write(p)
}

func TestDemo(t *testing.T) {
	a, stdout, stderr := newTestApp(t)
	var dir string
	a.runDaemon = func(ctx context.Context, cfg config.Config, opts daemonOptions) error {
		dir = filepath.Dir(cfg.StateDir)
		for _, p := range append(cfg.Sources.Claude.Paths, cfg.DataDir, opts.Home, cfg.CredentialsPath()) {
			if !strings.HasPrefix(p, dir) {
				t.Errorf("%s is outside of %s", p, dir)
			}
		}
		opts.Ready("ready")
		for _, e := range conversation() {
			opts.OnEnvelope("session", "claude", *e)
		}
		<-ctx.Done()
		return nil
	}
	if code := a.run(context.Background(), []string{"demo", "--speed", "1000"}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{"ready\n", "Three subagents", "▸ Agent: Look into it", "16 events were mapped"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, stdout)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %s", dir)
	}
}

func TestDemoReportsADaemonThatFails(t *testing.T) {
	for name, daemonErr := range map[string]error{"with an error": errors.New("no luck"), "silently": nil} {
		t.Run(name, func(t *testing.T) {
			a, _, stderr := newTestApp(t)
			a.runDaemon = func(context.Context, config.Config, daemonOptions) error { return daemonErr }
			if code := a.run(context.Background(), []string{"demo"}); code != exitError || !strings.Contains(stderr.String(), "running the demo") {
				t.Errorf("%d, %s", code, stderr)
			}
		})
	}
}

func TestLogger(t *testing.T) {
	a, _, stderr := newTestApp(t)
	path := filepath.Join(t.TempDir(), "logs", "happyd.log")
	log, closer, err := a.newLogger(config.Log{Level: "warn", Format: "auto", File: path})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud", "n", 1)
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"file": string(data), "standard error": stderr.String()} {
		if !strings.Contains(text, `"msg":"loud"`) || strings.Contains(text, "quiet") {
			t.Errorf("%s: %q", where, text)
		}
	}
}

func TestTextHelpers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 90 * time.Minute: "1h30m", 72 * time.Hour: "3d",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 3 << 20: "3.0 MiB", 5 << 30: "5.0 GiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
	if got := shorten("äöü", 2); got != "ä…" {
		t.Errorf("shorten = %q", got)
	}
}
