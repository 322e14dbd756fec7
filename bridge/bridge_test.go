package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeUplink records what the bridge asks of it.
type fakeUplink struct {
	mu       sync.Mutex
	presence map[string]uplink.Presence
	history  []string
}

func (f *fakeUplink) Wake(string) {}

func (f *fakeUplink) Presence(key string, p uplink.Presence) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.presence == nil {
		f.presence = map[string]uplink.Presence{}
	}
	f.presence[key] = p
	f.history = append(f.history, fmt.Sprintf("%s alive=%v thinking=%v", key, p.Alive, p.Thinking))
}

func (f *fakeUplink) of(key string) (uplink.Presence, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.presence[key]
	return p, ok
}

// rig is a bridge on a temporary home with a real store.
type rig struct {
	t       *testing.T
	home    string
	dir     string
	account *crypto.Account
	store   *store.Store
	scope   *store.Scope
	up      *fakeUplink
	bridge  *Bridge
	stop    func()
	options func(*Options)

	mu   sync.Mutex
	envs map[string][]protocol.Envelope // published, by session
}

func newRig(t *testing.T, options func(*Options)) *rig {
	t.Helper()
	account, err := crypto.NewLegacyAccount([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &rig{t: t, dir: dir, home: filepath.Join(dir, "home", ".claude"), account: account, up: &fakeUplink{}, options: options, envs: map[string][]protocol.Envelope{}}
	if err := os.MkdirAll(filepath.Join(r.home, "projects", "-p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.home, "sessions"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
	})
	return r
}

func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(filepath.Join(r.dir, "state", "happyd.db"), store.Options{}); err != nil {
		r.t.Fatal(err)
	}
	if r.scope, err = r.store.Scope("test"); err != nil {
		r.t.Fatal(err)
	}
	o := Options{
		Sources: []Source{{Provider: claude.Provider{}, Homes: []string{r.home}}},
		Scope:   r.scope, Account: r.account, Uplink: r.up, History: config.History{All: true}, Memory: 1 << 20,
		Machine: Machine{Host: "box", OS: "linux", Home: "/home/dev"}, Newborn: time.Millisecond,
		OwnParents: func(int) []string { return nil },
		Publish: func(session, _ string, e protocol.Envelope) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.envs[session] = append(r.envs[session], e)
		},
	}
	if r.options != nil {
		r.options(&o)
	}
	r.bridge = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.bridge.Run(ctx) }()
	r.stop = func() {
		r.stop = nil
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("bridge: %v", err)
		}
		if err := r.store.Close(); err != nil {
			r.t.Errorf("store: %v", err)
		}
	}
}

func (r *rig) restart() {
	r.stop()
	r.start()
}

// write appends lines to a log of the project.
func (r *rig) write(rel string, lines ...string) {
	r.t.Helper()
	path := filepath.Join(r.home, "projects", "-p", rel)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		r.t.Fatal(err)
	}
}

var lineTime = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// record is one line of a session in a working directory.
func record(cwd, typ string, n int, extra string) string {
	return fmt.Sprintf(`{"type":%q,"uuid":"u-%s-%d","parentUuid":null,"isSidechain":false,"timestamp":%q,"cwd":%q,"version":"2.1.332","entrypoint":"cli",%s}`,
		typ, typ, n, lineTime.Add(time.Duration(n)*time.Second).Format(time.RFC3339Nano), cwd, extra)
}

func prompt(n int, text string) string {
	return record("/home/dev/shop", "user", n, fmt.Sprintf(`"message":{"role":"user","content":%q}`, text))
}

func answer(n int, text, stop string) string {
	return record("/home/dev/shop", "assistant", n, fmt.Sprintf(`"message":{"id":"m%d","role":"assistant","content":[{"type":"text","text":%q}],"stop_reason":%q}`, n, text, stop))
}

func turnEnd(n int) string {
	return record("/home/dev/shop", "system", n, `"subtype":"turn_duration","durationMs":1`)
}

func (r *rig) texts(session string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.envs[session] {
		switch e.Ev.T {
		case protocol.TypeText:
			out = append(out, e.Ev.Text)
		case protocol.TypeTurnEnd:
			out = append(out, "end:"+string(e.Ev.Status))
		}
	}
	return out
}

// wait polls until cond holds.
func (r *rig) wait(what string, cond func() bool) {
	r.t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	r.t.Fatalf("timed out waiting until %s; have %v", what, r.envs)
}

func (r *rig) wantTexts(session string, want ...string) {
	r.t.Helper()
	r.wait(fmt.Sprintf("%s shows %q", session, want), func() bool { return fmt.Sprint(r.texts(session)) == fmt.Sprint(want) })
}

// outbox opens what was queued for a session.
func (r *rig) outbox(session string) (envs []protocol.Envelope) {
	r.t.Helper()
	_, ses, ok, err := r.scope.Session("claude:" + session)
	if err != nil || !ok {
		r.t.Fatalf("session %s: %v %v", session, ok, err)
	}
	keys, err := r.account.Session(ses.Info.Tag)
	if err != nil {
		r.t.Fatal(err)
	}
	entries, err := r.scope.Peek("claude:"+session, 10000, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		plain, err := keys.Sealer.Open(e.Sealed)
		if err != nil {
			r.t.Fatal(err)
		}
		env, err := protocol.Unwrap(plain)
		if err != nil {
			r.t.Fatal(err)
		}
		if env.ID != e.LocalID || env.Turn != e.Turn || string(env.Ev.T) != e.Kind {
			r.t.Errorf("entry %+v does not fit its envelope %+v", e.LocalID, env)
		}
		envs = append(envs, env)
	}
	return envs
}

func TestLogsReachTheOutbox(t *testing.T) {
	r := newRig(t, nil)
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Hello.", "end_turn"), turnEnd(3))
	r.start()
	r.wantTexts("s1", "Hi", "Hello.", "end:completed")
	r.write("s1.jsonl", prompt(4, "More"), answer(5, "Sure.", "end_turn"), turnEnd(6))
	r.wantTexts("s1", "Hi", "Hello.", "end:completed", "More", "Sure.", "end:completed")
	envs := r.outbox("s1")
	if bad := streamcheck.Check(envs); len(bad) > 0 || len(streamcheck.Open(envs)) > 0 {
		t.Error(bad, streamcheck.Open(envs))
	}
	_, ses, _, err := r.scope.Session("claude:s1")
	if err != nil {
		t.Fatal(err)
	}
	keys, _ := r.account.Session(ses.Info.Tag)
	plain, err := keys.Sealer.Open(ses.Info.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	var meta struct {
		Path, Host, Flavor, ClaudeSessionID string
		Summary                             struct{ Text string }
	}
	if err := json.Unmarshal(plain, &meta); err != nil {
		t.Fatal(err)
	}
	if meta.Path != "/home/dev/shop" || meta.Host != "box" || meta.Flavor != "claude" || meta.ClaudeSessionID != "s1" || meta.Summary.Text != "Hi" {
		t.Errorf("metadata %s", plain)
	}
}

func TestRestartGoesOnWhereItStopped(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Half.", "tool_use"))
	r.wantTexts("s1", "Hi", "Half.")
	r.stop()
	r.write("s1.jsonl", answer(3, "Whole.", "end_turn"), turnEnd(4))
	r.start()
	r.wantTexts("s1", "Hi", "Half.", "Whole.", "end:completed")
	if envs := r.outbox("s1"); len(streamcheck.Check(envs)) > 0 || len(streamcheck.Open(envs)) > 0 {
		t.Error(streamcheck.Check(envs), streamcheck.Open(envs))
	}
}

func TestLostStateGivesTheSameIds(t *testing.T) {
	r := newRig(t, nil)
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Hello.", "end_turn"), turnEnd(3))
	r.start()
	r.wantTexts("s1", "Hi", "Hello.", "end:completed")
	first := r.outbox("s1")
	_, a, _, _ := r.scope.Session("claude:s1")
	r.stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "state")); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wait("all is queued again", func() bool { return r.scope.Queued("claude:s1").Count == len(first) })
	_, b, _, _ := r.scope.Session("claude:s1")
	if a.Info.Tag != b.Info.Tag || a.Info.Wrapped != b.Info.Wrapped {
		t.Error("tag or key differ")
	}
	for i, e := range r.outbox("s1") {
		if e.ID != first[i].ID || e.Turn != first[i].Turn {
			t.Errorf("envelope %d: id %s, was %s", i, e.ID, first[i].ID)
		}
	}
}

func TestHistoryBeginsAtItsWindow(t *testing.T) {
	r := newRig(t, func(o *Options) { o.History = config.History{Window: time.Hour} })
	r.write("old.jsonl", prompt(1, "Old"), answer(2, "Old answer.", "end_turn"), turnEnd(3))
	r.write("new.jsonl", prompt(1, "New"), answer(2, "New answer.", "end_turn"), turnEnd(3))
	long := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(r.home, "projects", "-p", "old.jsonl"), long, long); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wantTexts("new", "New", "New answer.", "end:completed")
	r.write("old.jsonl", prompt(4, "Resumed"), answer(5, "Go on.", "end_turn"), turnEnd(6))
	r.wantTexts("old", "Resumed", "Go on.", "end:completed")
	r.restart()
	r.write("old.jsonl", prompt(7, "Again"), answer(8, "Yes.", "end_turn"), turnEnd(9))
	r.wantTexts("old", "Resumed", "Go on.", "end:completed", "Again", "Yes.", "end:completed")
}

func TestDirectoriesThatAreNotAllowedStayHere(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Projects = config.NewProjects([]string{"/home/dev"}, []string{"/home/dev/shop/secret"}, config.HomeEnv("/home/dev"))
	})
	r.start()
	r.write("other.jsonl", record("/srv/other", "user", 1, `"message":{"role":"user","content":"Elsewhere"}`))
	r.write("s1.jsonl", prompt(1, "Hi"), record("/home/dev/shop/secret", "user", 2, `"message":{"role":"user","content":"Secret"}`), prompt(3, "Back"))
	r.wantTexts("s1", "Hi", "Back")
	r.wait("the other one was decided", func() bool { return r.bridge.Sessions()["claude:other"].State == "withheld" })
	if _, ses, ok, _ := r.scope.Session("claude:other"); ok && (len(ses.Info.Metadata) > 0 || r.scope.Queued("claude:other").Count > 0) {
		t.Error("a session of another directory is on its way")
	}
	if n := r.bridge.Counters()["withheld record of an excluded directory"]; n != 1 {
		t.Errorf("withheld %d records, want 1", n)
	}
}

func TestSessionsThatHappyDrivesAreLeftAlone(t *testing.T) {
	happy := t.TempDir()
	if err := os.WriteFile(filepath.Join(happy, "sessions.json"), []byte(`{"sessions":{"x":{"metadata":{"claudeSessionId":"mine"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.HappyHome = happy })
	r.start()
	r.write("mine.jsonl", prompt(1, "Hi"))
	r.write("remote.jsonl", strings.Replace(prompt(1, "Hi"), `"entrypoint":"cli"`, `"entrypoint":"remote_mobile"`, 1))
	r.write("plain.jsonl", prompt(1, "Hi"))
	r.wantTexts("plain", "Hi")
	for _, id := range []string{"mine", "remote"} {
		r.wait(id+" is skipped", func() bool { return r.bridge.Sessions()["claude:"+id].State == "skipped" })
		if r.scope.Queued("claude:"+id).Count > 0 {
			t.Errorf("%s is on its way", id)
		}
	}
}

// agent starts a process that stands for an agent, and its process file.
func (r *rig) agent(session, status string) (end func()) {
	r.t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		r.t.Skip("no sleep command to stand for an agent")
	}
	path := filepath.Join(r.home, "sessions", fmt.Sprintf("%d.json", cmd.Process.Pid))
	body := fmt.Sprintf(`{"pid":%d,"sessionId":%q,"status":%q,"statusUpdatedAt":%d}`, cmd.Process.Pid, session, status, time.Now().UnixMilli())
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		r.t.Fatal(err)
	}
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	r.t.Cleanup(end)
	return end
}

func TestDeadProcessEndsItsTurnAndPresence(t *testing.T) {
	r := newRig(t, nil)
	end := r.agent("s1", "busy")
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Working.", "tool_use"))
	r.wantTexts("s1", "Hi", "Working.")
	r.wait("it is shown alive and thinking", func() bool {
		p, _ := r.up.of("claude:s1")
		return p.Alive && p.Thinking
	})
	end()
	r.wantTexts("s1", "Hi", "Working.", "end:failed")
	r.wait("it is shown as gone", func() bool {
		p, ok := r.up.of("claude:s1")
		return ok && !p.Alive
	})
}

func TestProcessThatDiedWhileNobodyLooked(t *testing.T) {
	r := newRig(t, nil)
	end := r.agent("s1", "busy")
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Working.", "tool_use"))
	r.wait("it is shown alive", func() bool { p, _ := r.up.of("claude:s1"); return p.Alive })
	r.stop()
	end()
	files, _ := filepath.Glob(filepath.Join(r.home, "sessions", "*.json"))
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	r.wantTexts("s1", "Hi", "Working.", "end:failed")
	r.wait("it is shown as gone", func() bool { p, _ := r.up.of("claude:s1"); return !p.Alive })
}

func TestIdleProcessClosesATurn(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), strings.Replace(answer(2, "Old client.", "x"), `"stop_reason":"x"`, `"stop_reason":null`, 1))
	r.wantTexts("s1", "Hi", "Old client.")
	r.agent("s1", "idle")
	r.wantTexts("s1", "Hi", "Old client.", "end:completed")
}

func TestForeignKeyStartsOverUnderAnotherTag(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"), answer(2, "Hello.", "end_turn"), turnEnd(3))
	r.wantTexts("s1", "Hi", "Hello.", "end:completed")
	_, before, _, _ := r.scope.Session("claude:s1")
	r.bridge.NewGeneration("claude:s1")
	r.wait("it has another tag and all its messages", func() bool {
		_, ses, _, err := r.scope.Session("claude:s1")
		return err == nil && ses.Info.Tag != before.Info.Tag && ses.Info.Generation == 1 && r.scope.Queued("claude:s1").Count == 4
	})
	for _, e := range r.outbox("s1") {
		if e.ID == "" {
			t.Error("no id")
		}
	}
}

func TestDeletedSessionStaysDeleted(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	r.write("s1.jsonl", prompt(1, "Hi"))
	r.wantTexts("s1", "Hi")
	r.bridge.Gone("claude:s1")
	r.wait("it is marked", func() bool { return r.bridge.Sessions()["claude:s1"].State == "session_gone" })
	r.write("s1.jsonl", prompt(2, "More"))
	r.write("s2.jsonl", prompt(1, "Other"))
	r.wantTexts("s2", "Other")
	if n := r.scope.Queued("claude:s1").Count; n != 1 {
		t.Errorf("%d messages queued, want the first only", n)
	}
}

func TestOrphansAreCountedAndReleased(t *testing.T) {
	r := newRig(t, nil)
	r.start()
	child := func(n int, typ, extra string) string {
		return strings.Replace(record("/home/dev/shop", typ, 100+n, extra), `"isSidechain":false`, `"isSidechain":true,"agentId":"a1"`, 1)
	}
	r.write("s1.jsonl", prompt(1, "Hi"))
	r.write("s1/subagents/agent-a1.jsonl",
		child(1, "user", `"message":{"role":"user","content":"Look"}`),
		child(2, "assistant", `"message":{"id":"c1","role":"assistant","content":[{"type":"text","text":"Found."}],"stop_reason":"end_turn"}`))
	r.wait("the orphans are counted", func() bool { return r.bridge.Orphans().Messages == 2 })
	r.restart()
	r.wait("they are counted after a restart, too", func() bool {
		n := r.bridge.Orphans()
		return n.Messages == 2 && n.Agents == 1
	})
	r.write("s1.jsonl", record("/home/dev/shop", "assistant", 2, `"message":{"id":"m2","role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Agent","input":{"description":"Look","prompt":"Look"}}],"stop_reason":"tool_use"}`),
		record("/home/dev/shop", "user", 3, `"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"Found."}]},"toolUseResult":{"status":"completed","agentId":"a1"}`),
		answer(4, "Done.", "end_turn"), turnEnd(5))
	r.wantTexts("s1", "Hi", "Found.", "Done.", "end:completed")
	if n := r.bridge.Orphans(); n.Messages != 0 {
		t.Errorf("left over: %+v", n)
	}
	envs := r.outbox("s1")
	if bad := streamcheck.Check(envs); len(bad) > 0 || len(streamcheck.Open(envs)) > 0 {
		t.Error(bad, streamcheck.Open(envs))
	}
}
