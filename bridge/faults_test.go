package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/watch"
)

func TestShutdownWithAStateThatCannotBeRead(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	if err := r.scope.Commit(context.Background(), store.Commit{Session: "claude:s1", State: []byte("not sealed by us")}); err != nil {
		t.Fatal(err)
	}
	a := newActor(r.bridge, claude.Provider{}, "s1")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	a.run(ctx) // must not panic when it ends
	if !a.broken {
		t.Error("the state was taken")
	}
}

func TestStatusAndDeletionWhileASessionLoads(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	for i := range 20 {
		id := fmt.Sprintf("s%d", i)
		r.write(id+".jsonl", prompt(1, "Hi"))
		r.wait(id+" is there", func() bool {
			r.bridge.Left()
			_, ok := r.bridge.Sessions()["claude:"+id]
			r.bridge.Gone("claude:" + id)
			return ok
		})
	}
}

const codexThread = "0199a000-0000-7000-8000-000000000001"

// codexLog writes a rollout of one turn in a working directory.
func codexLog(t *testing.T, home, cwd, text string, more ...string) string {
	t.Helper()
	path := filepath.Join(home, "sessions", "2026", "11", "20", "rollout-2026-11-20T09-00-00-"+codexThread+".jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	line := func(n int, typ, payload string) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-20T09:00:%02d.000Z","type":%q,"payload":%s}`, n, typ, payload)
	}
	lines := append([]string{
		line(1, "session_meta", fmt.Sprintf(`{"id":%q,"timestamp":"2026-11-20T09:00:01.000Z","cwd":%q,"originator":"codex_cli_rs","cli_version":"0.98.0","source":"cli"}`, codexThread, cwd)),
		line(2, "event_msg", `{"type":"task_started","turn_id":"t1"}`),
		line(3, "turn_context", fmt.Sprintf(`{"cwd":%q,"model":"m"}`, cwd)),
		line(4, "event_msg", fmt.Sprintf(`{"type":"user_message","message":%q}`, text)),
	}, more...)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCodexInAnExcludedDirectoryStaysHere(t *testing.T) {
	r := newRig(t, nil)
	home := filepath.Join(r.dir, "home", ".codex")
	r.options = func(o *Options) {
		o.Sources = append(o.Sources, Source{Provider: codex.NewProvider(), Homes: []string{home}})
		o.Projects = config.NewProjects(nil, []string{"/home/dev/secret"}, config.HomeEnv("/home/dev"))
	}
	codexLog(t, home, "/home/dev/secret/plans", "Secret plan",
		`{"timestamp":"2026-11-20T09:00:05.000Z","type":"turn_context","payload":{"cwd":"/home/dev/shop","model":"m"}}`,
		`{"timestamp":"2026-11-20T09:00:06.000Z","type":"event_msg","payload":{"type":"user_message","message":"Harmless"}}`)
	r.start()
	r.wantTexts(codexThread, "Harmless")
	if n := r.bridge.Counters()["withheld record of an excluded directory"]; n == 0 {
		t.Error("nothing was counted as withheld")
	}
}

func TestExcludedDirectoryIsKnownAfterARestart(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Projects = config.NewProjects(nil, []string{"/home/dev/secret"}, config.HomeEnv("/home/dev"))
	})
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), record("/home/dev/secret", "user", 2, `"message":{"role":"user","content":"Secret"}`))
	r.wantTexts("s1", "Hi")
	r.wait("the second was withheld", func() bool { return r.bridge.Counters()["withheld record of an excluded directory"] == 1 })
	r.restart()
	r.write("s1.jsonl", `{"type":"custom-title","customTitle":"Secret title","sessionId":"s1"}`)
	r.wait("the third was withheld", func() bool { return r.bridge.Counters()["withheld record of an excluded directory"] == 1 })
}

func TestSidecarsOfOldSessionsLoadNothing(t *testing.T) {
	r := newRig(t, func(o *Options) { o.History = config.History{Window: time.Hour} })
	r.write("old.jsonl", prompt(1, "Old"))
	r.write("old/subagents/agent-a1.jsonl", strings.Replace(prompt(2, "Look"), `"isSidechain":false`, `"isSidechain":true,"agentId":"a1"`, 1))
	r.write("old/subagents/agent-a1.meta.json", `{"agentType":"Explore","description":"Look","toolUseId":"toolu_1"}`)
	long := time.Now().Add(-2 * time.Hour)
	for _, f := range []string{"old.jsonl", "old/subagents/agent-a1.jsonl", "old/subagents/agent-a1.meta.json"} {
		if err := os.Chtimes(filepath.Join(r.home, "projects", "-p", f), long, long); err != nil {
			t.Fatal(err)
		}
	}
	r.write("zz.jsonl", prompt(1, "New"))
	r.start()
	r.wantTexts("zz", "New")
	if s, ok := r.bridge.Sessions()["claude:old"]; ok {
		t.Errorf("a session from before the history window was loaded: %+v", s)
	}
}

func TestSidecarsThatWereReadAreNotReadAgain(t *testing.T) {
	r := newRig(t, nil)
	r.write("s1/subagents/agent-a1.meta.json", `{"agentType":"Explore","description":"Look","toolUseId":"toolu_1"}`)
	r.start()
	r.wait("the sidecar was read", func() bool {
		_, ok, err := r.scope.Cursor(filepath.Join(r.home, "projects", "-p", "s1", "subagents", "agent-a1.meta.json"))
		return ok && err == nil
	})
	r.restart()
	r.write("zz.jsonl", prompt(1, "New"))
	r.wantTexts("zz", "New")
	if s, ok := r.bridge.Sessions()["claude:s1"]; ok {
		t.Errorf("the session was loaded for nothing: %+v", s)
	}
	// What it said is still known.
	side := func(l string) string {
		return strings.Replace(l, `"isSidechain":false`, `"isSidechain":true,"agentId":"a1"`, 1)
	}
	r.write("s1/subagents/agent-a1.jsonl", side(prompt(5, "Look")), side(answer(6, "Found.", "end_turn")))
	r.write("s1.jsonl", prompt(1, "Hi"), record("/home/dev/shop", "assistant", 2, `"message":{"id":"m2","role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Agent","input":{"description":"Look","prompt":"Something else"}}],"stop_reason":"tool_use"}`))
	r.wait("the child starts", func() bool {
		for _, e := range r.outbox("s1") {
			if e.Ev.T == protocol.TypeStart {
				return true
			}
		}
		return false
	})
}

func TestFewSessionsReadAtATime(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	for range readers {
		r.bridge.slots <- struct{}{}
	}
	r.write("s1.jsonl", prompt(1, "Hi"))
	r.wait("the session was met", func() bool { return len(r.bridge.Sessions()) == 1 })
	time.Sleep(100 * time.Millisecond)
	if got := r.texts("s1"); len(got) > 0 {
		t.Errorf("read without its turn: %q", got)
	}
	<-r.bridge.slots
	r.wantTexts("s1", "Hi")
	r.bridge.slots <- struct{}{}
	r.write("s1.jsonl", prompt(2, "More"))
	time.Sleep(50 * time.Millisecond)
	r.stop() // while it waits for its turn
	r.start()
	r.wantTexts("s1", "Hi", "More")
}

func TestStampInTheFuture(t *testing.T) {
	r := newRig(t, nil)
	r.write("s1.jsonl", prompt(1, "Hi"))
	future := time.Now().Add(48 * time.Hour)
	if err := os.Chtimes(filepath.Join(r.home, "projects", "-p", "s1.jsonl"), future, future); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wantTexts("s1", "Hi")
	var grew *time.Time
	r.wait("its growth is known", func() bool { grew = r.bridge.Sessions()["claude:s1"].LastRecord; return grew != nil })
	if grew.After(time.Now()) {
		t.Errorf("it last grew at %v", grew)
	}
}

func TestPresenceIsTrueWhileTheOutboxIsFull(t *testing.T) {
	var full atomic.Bool
	r := newRig(t, func(o *Options) { o.Full = full.Load })
	end := r.agent("s1", "busy")
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Working.", "tool_use"))
	r.wait("it is shown alive", func() bool { p, _ := r.up.of("claude:s1"); return p.Alive })
	full.Store(true)
	end()
	r.wait("it is shown as gone", func() bool { p, _ := r.up.of("claude:s1"); return !p.Alive })
	full.Store(false)
	r.wantTexts("s1", "Hi", "Working.", "end:failed")
}

func TestReadLogsStayClosedWhereNoInodeIsTold(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	root := claude.Provider{}.Roots(r.home)[0]
	e := watch.Event{Path: filepath.Join(root.Path, "-p", "s1.jsonl"), Rel: "-p/s1.jsonl", Class: watch.Log, Op: watch.Seen, Size: 10, ModTime: time.Now()}
	cur, _ := json.Marshal(watch.Cursor{Dev: 1, Ino: 2, Offset: 10, HeadLen: 1})
	if err := r.scope.Commit(context.Background(), store.Commit{Cursors: map[string][]byte{e.Path: cur}}); err != nil {
		t.Fatal(err)
	}
	if !r.bridge.beforeHistory(context.Background(), claude.Provider{}, root, e) {
		t.Error("a log that was read to its end is opened again")
	}
}

func TestRunEndsWhenTheWatcherBreaks(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	o := r.bridge.o
	o.Sources = []Source{{Provider: codex.NewProvider(), Homes: []string{"relative"}}}
	b := New(o)
	done := make(chan error, 1)
	go func() { done <- b.Run(context.Background()) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error for a root that cannot be watched")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Run goes on although nothing is watched")
	}
}

func TestNothingIsReadOnWhileADirectoryIsUnknown(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Projects = config.NewProjects([]string{"/home/dev"}, nil, config.HomeEnv("/home/dev"))
	})
	long := strings.Repeat("x", 100<<10)
	var lines []string
	for i := range 100 {
		lines = append(lines, strings.Replace(answer(i, long, "tool_use"), `"cwd":"/home/dev/shop",`, "", 1))
	}
	r.write("s1.jsonl", lines...)
	r.start()
	offset := func() (n int64) {
		for _, f := range r.bridge.Sessions()["claude:s1"].Files {
			n = f.Offset
		}
		return n
	}
	r.wait("it is held", func() bool { return offset() > gateBytes })
	held := offset()
	time.Sleep(2500 * time.Millisecond)
	if now := offset(); now != held {
		t.Errorf("read on from %d to %d", held, now)
	}
}

func TestStartingOverForgetsNothingAboutTheSession(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	ctx := context.Background()
	a := newActor(r.bridge, claude.Provider{}, "s1")
	if err := a.load(); err != nil {
		t.Fatal(err)
	}
	a.saved.Form, a.saved.Process = FormStream, true
	a.startOver(ctx, map[string]file{})
	if a.saved.Form != FormStream || !a.saved.Process || a.info.Generation != 1 {
		t.Errorf("state %+v, info %+v", a.saved, a.info)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	a.startOver(ended, map[string]file{})
	if a.info.Generation == 1 && !a.regenerate {
		t.Error("a start over that failed is not tried again")
	}
	a.pump.Close()
}

// locateCounter counts how often files are located.
type locateCounter struct {
	claude.Provider
	n *atomic.Int64
}

func (p locateCounter) Locate(root watch.Root, rel string, first func() (watch.Record, bool)) (adapters.Place, bool) {
	p.n.Add(1)
	return p.Provider.Locate(root, rel, first)
}

func TestFilesWithoutAPlaceAreNotAskedForEachOther(t *testing.T) {
	p := locateCounter{n: new(atomic.Int64)}
	r := newRig(t, func(o *Options) { o.Sources[0].Provider = p })
	const files = 30
	for i := range files {
		if err := os.WriteFile(filepath.Join(r.home, "projects", "-p", fmt.Sprintf("agent-%02d.jsonl", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.write(fmt.Sprintf("s%d.jsonl", i), prompt(1, "Hi"))
	}
	r.start()
	r.wait("all are read", func() bool { return len(r.scope.Pending()) == files })
	if n := p.n.Load(); n > 5*files {
		t.Errorf("%d files were located %d times", 2*files, n)
	}
	r.write("agent-00.jsonl", strings.Replace(prompt(2, "Look"), `"type"`, `"sessionId":"s0","isSidechain":true,"agentId":"00","type"`, 1))
	r.wait("one is placed at last", func() bool { return r.bridge.Orphans().Messages > 0 })
}

func TestCursorsOfOldLogsSurviveAFullDisk(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	cur, _ := json.Marshal(watch.Cursor{Offset: 10})
	r.bridge.mu.Lock()
	r.bridge.old["old"] = cur
	r.bridge.mu.Unlock()
	for range 20 { // a store that takes nothing
		r.bridge.flushOld(ended)
	}
	a := newActor(r.bridge, claude.Provider{}, "old")
	if c, err := a.cursor("old"); err != nil || c.Offset != 10 {
		t.Errorf("cursor %+v, %v: the whole past would be read", c, err)
	}
}

func TestStatusWhileRecordsAreCounted(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"))
	r.wantTexts("s1", "Hi")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 150 {
			r.write("s1.jsonl", fmt.Sprintf(`{"type":"unknown-%d"}`, i))
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		r.bridge.Left()
		r.bridge.Sessions()
		r.bridge.Counters()
	}
	r.wait("all are counted", func() bool { return len(r.bridge.Left()) >= 150 })
}
