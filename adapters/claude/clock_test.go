package claude_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// live is a session under a clock of its own: records are fed as they appear, and time passes only when a test says so.
type live struct {
	t    *testing.T
	pump *bridge.Pump
	now  int64
	off  map[string]int64
	envs []protocol.Envelope
	seen pumptest.Seen
}

const start = int64(1_772_445_600_000)

func newLive(t *testing.T) *live {
	l := &live{t: t, now: start, off: map[string]int64{}, seen: pumptest.Seen{}}
	l.open(nil)
	return l
}

func (l *live) open(saved []byte) {
	l.t.Helper()
	pump, err := bridge.NewPump(claude.Provider{}, adapters.SessionOptions{ID: "s", Tag: "tag", Seen: l.seen}, buffer.New(buffer.NewBudget(1<<20), nil), saved)
	if err != nil {
		l.t.Fatal(err)
	}
	l.pump = pump
}

// line feeds one record to a stream. TS in it becomes the clock's time.
func (l *live) line(stream, json string) {
	l.t.Helper()
	json = strings.ReplaceAll(json, "TS", time.UnixMilli(l.now).UTC().Format("2006-01-02T15:04:05.000Z"))
	path := "log-" + stream
	r := watch.Record{Path: path, Offset: l.off[stream], Next: l.off[stream] + int64(len(json)) + 1, Data: []byte(json), Size: int64(len(json))}
	l.off[stream] = r.Next
	l.pump.Feed(adapters.Place{Session: "s", Stream: stream}, r, l.now)
	l.take()
}

func (l *live) take() {
	envs, _ := l.pump.Take()
	l.envs = append(l.envs, envs...)
}

// wait lets time pass in small steps, with all files read.
func (l *live) wait(d time.Duration) {
	for end := l.now + d.Milliseconds(); l.now < end; {
		l.now = min(end, l.now+50)
		l.pump.Tick(l.now, true)
		l.take()
	}
}

func (l *live) meta(stream, json string) {
	l.pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: stream, Data: []byte(json)}, l.now)
	l.take()
}

func (l *live) process(p adapters.Process) {
	p.Known = true
	l.pump.Observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: p}, l.now)
	l.take()
}

// want compares everything that came out since the last call.
func (l *live) want(lines ...string) {
	l.t.Helper()
	got := strings.Split(strings.TrimSpace(short(l.envs)), "\n")
	if len(l.envs) == 0 {
		got = nil
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", append([]string(nil), lines...)) {
		l.t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
	l.envs = nil
}

// short names only what a test of time looks at.
func short(envs []protocol.Envelope) string {
	var b strings.Builder
	for _, e := range envs {
		if e.Subagent != "" {
			b.WriteString("kid ")
		}
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprint(e.Ev.T, " ", e.Ev.Text, e.Ev.Status)))
	}
	return b.String()
}

const (
	prompt   = `{"type":"user","uuid":"u1","timestamp":"TS","promptId":"p1","version":"2.1.332","message":{"role":"user","content":"go"}}`
	answer   = `{"type":"assistant","uuid":"a1","timestamp":"TS","message":{"id":"m1","content":[{"type":"text","text":"done"}],"stop_reason":"end_turn"}}`
	spawn    = `{"type":"assistant","uuid":"a2","timestamp":"TS","message":{"id":"m2","content":[{"type":"tool_use","id":"toolu_spawn_spawn_1","name":"Agent","input":{"description":"kid","prompt":"do"}}],"stop_reason":"tool_use"}}`
	returned = `{"type":"user","uuid":"u2","timestamp":"TS","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_spawn_spawn_1","content":"x"}]},"toolUseResult":{"status":"completed","agentId":"k"}}`
	kidMeta  = `{"toolUseId":"toolu_spawn_spawn_1","agentType":"x","description":"kid","spawnDepth":1}`
	kidStart = `{"type":"user","uuid":"k1","timestamp":"TS","promptId":"p1","message":{"role":"user","content":"do"}}`
	kidWork  = `{"type":"assistant","uuid":"k2","timestamp":"TS","message":{"id":"km1","content":[{"type":"text","text":"working"}],"stop_reason":"tool_use"}}`
	kidDone  = `{"type":"assistant","uuid":"k3","timestamp":"TS","message":{"id":"km2","content":[{"type":"text","text":"result"}],"stop_reason":"end_turn"}}`
	bash     = `{"type":"assistant","uuid":"a3","timestamp":"TS","message":{"id":"m3","content":[{"type":"tool_use","id":"toolu_bash_bash_bash_1","name":"Bash","input":{"command":"ls"}}],"stop_reason":"tool_use"}}`
	apiError = `{"type":"assistant","uuid":"a4","timestamp":"TS","isApiErrorMessage":true,"message":{"id":"m4","model":"<synthetic>","content":[{"type":"text","text":"API Error"}],"stop_reason":"stop_sequence"}}`
)

func TestTurnEndsAfterItsGrace(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", answer)
	l.want("text go", "turn-start", "text done")
	l.wait(1900 * time.Millisecond)
	l.want()
	l.wait(200 * time.Millisecond)
	l.want("turn-end completed")
	if w := l.pump.Wake(); w != 0 {
		t.Errorf("wakes at %d although nothing is open", w)
	}
}

func TestAPIErrorFailsAfterItsGraceUnlessAToolRuns(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", bash)
	l.line("", apiError)
	l.wait(20 * time.Second)
	l.want("text go", "turn-start", "tool-call-start", "service API Error")
	l.line("", `{"type":"user","uuid":"u3","timestamp":"TS","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_bash_bash_bash_1","content":"x"}]}}`)
	l.line("", strings.Replace(apiError, "a4", "a5", 1))
	l.wait(2900 * time.Millisecond)
	l.want("tool-call-end", "service API Error")
	l.wait(200 * time.Millisecond)
	l.want("turn-end failed")
}

func TestParentWaitsForItsChildsEnd(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", spawn)
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", kidWork)
	l.want("text go", "turn-start", "tool-call-start", "kid start", "kid text working")
	l.line("", returned)
	l.line("", answer)
	l.wait(600 * time.Millisecond)
	l.want()
	l.line("k", kidDone) // the last line comes after the result
	l.want("kid text result")
	l.wait(400 * time.Millisecond)
	l.want("kid stop", "tool-call-end", "text done")
}

func TestParentWaitsTwoSecondsAtMost(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", spawn)
	l.line("", returned)
	l.line("", answer)
	l.wait(1900 * time.Millisecond)
	l.want("text go", "turn-start", "tool-call-start")
	l.wait(200 * time.Millisecond)
	l.want("tool-call-end", "text done")
	// Its child shows up all the same, and is not left open.
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", kidDone)
	l.wait(3 * time.Second)
	l.want("kid start", "kid text result", "kid stop", "turn-end completed")
}

func TestHoldSurvivesARestart(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", spawn)
	l.wait(100 * time.Millisecond)
	l.line("", returned)
	wake := l.pump.Wake()
	s, err := l.pump.Session().Save()
	if err != nil {
		t.Fatal(err)
	}
	again, err := claude.Provider{}.Load(adapters.SessionOptions{ID: "s", Tag: "tag", Seen: l.seen}, s)
	if err != nil {
		t.Fatal(err)
	}
	again.Tick(l.now, true)
	if got := again.Wake(); got != wake || wake == 0 {
		t.Errorf("wakes at %d, before the restart at %d", got, wake)
	}
}

func TestProcessDiesInTheMiddle(t *testing.T) {
	l := newLive(t)
	l.process(adapters.Process{Alive: true, Status: "busy"})
	l.line("", prompt)
	l.line("", spawn)
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", kidWork)
	l.wait(time.Minute)
	l.want("text go", "turn-start", "tool-call-start", "kid start", "kid text working")
	l.process(adapters.Process{})
	l.wait(1900 * time.Millisecond)
	l.want()
	l.wait(200 * time.Millisecond)
	l.want("kid stop", "tool-call-end", "turn-end failed")
	if w := l.pump.Wake(); w != 0 {
		t.Errorf("wakes at %d although nothing is open", w)
	}
}

func TestOrphanOfADeadProcess(t *testing.T) {
	l := newLive(t)
	l.process(adapters.Process{Alive: true, Status: "busy"})
	l.line("", prompt)
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", kidDone)
	l.wait(10 * time.Minute) // its call may still come: its parent streams
	l.want("text go")
	l.process(adapters.Process{})
	l.wait(5 * time.Second)
	l.want("turn-start", "tool-call-start", "tool-call-end", "turn-end completed", "kid start", "kid text result", "kid stop")
	if w := l.pump.Wake(); w != 0 {
		t.Errorf("wakes at %d although nothing is open", w)
	}
}

func TestGrandchildWaitsWhileItsParentStreams(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", spawn)
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", kidWork)
	l.meta("g", `{"toolUseId":"toolu_inner_inner_1","parentAgentId":"k","spawnDepth":2,"description":"inner","agentType":"x"}`)
	l.line("g", strings.ReplaceAll(kidStart, "k1", "g1"))
	l.line("", strings.Replace(returned, `"completed"`, `"async_launched","isAsync":true`, 1))
	l.line("g", strings.NewReplacer("k3", "g3", "result", "inner result").Replace(kidDone))
	l.line("", strings.NewReplacer("u1", "u9", "p1", "p2").Replace(prompt)) // the main thread moves on; the outer agent works in the background
	l.envs = nil
	l.wait(time.Minute)
	l.want()
	l.line("k", `{"type":"assistant","uuid":"k9","timestamp":"TS","message":{"id":"km1","content":[{"type":"tool_use","id":"toolu_inner_inner_1","name":"Agent","input":{"description":"inner","prompt":"do"}}],"stop_reason":"tool_use"}}`)
	l.want("kid tool-call-start", "kid start", "kid text inner result")
}

func TestOrphanBelowAnUnknownAgentOfADeadProcess(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.meta("g", `{"toolUseId":"toolu_inner_inner_1","parentAgentId":"never-seen","spawnDepth":2,"description":"inner","agentType":"x"}`)
	l.line("g", kidStart)
	l.line("g", kidDone)
	l.process(adapters.Process{})
	l.wait(10 * time.Second)
	l.want("text go", "turn-start", "tool-call-start", "tool-call-end", "turn-end completed", "kid start", "kid text result", "kid stop")
	if w := l.pump.Wake(); w != 0 {
		t.Errorf("wakes at %d although nothing is open", w)
	}
}

func TestIdleProcessClosesACancelledTurn(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", kidWork)
	l.process(adapters.Process{Alive: true, Status: "idle", StatusAt: l.now - 5000}) // older than the record: it was idle before
	l.wait(10 * time.Second)
	l.want("text go", "turn-start", "text working")
	l.process(adapters.Process{Alive: true, Status: "idle", StatusAt: l.now})
	l.wait(3100 * time.Millisecond)
	l.want("turn-end cancelled")
}

func TestEqualPromptsWaitForSidecars(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("k", kidStart) // before its sidecar
	l.line("k", kidDone)
	l.line("", spawn)
	l.line("", strings.NewReplacer("a2", "a9", "toolu_spawn_spawn_1", "toolu_spawn_spawn_2").Replace(spawn))
	l.wait(200 * time.Millisecond)
	l.want("text go", "turn-start", "tool-call-start", "tool-call-start")
	l.meta("k", strings.Replace(kidMeta, "toolu_spawn_spawn_1", "toolu_spawn_spawn_2", 1))
	if len(l.envs) != 2 || l.envs[0].Subagent != protocol.SubagentID("claude", "toolu_spawn_spawn_2") {
		t.Errorf("the child went to the wrong call: %s", short(l.envs))
	}
}

func TestStoppedByTheUserInTheSidecar(t *testing.T) {
	l := newLive(t)
	l.line("", prompt)
	l.line("", spawn)
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", kidWork)
	l.envs = nil
	l.meta("k", strings.Replace(kidMeta, "}", `,"stoppedByUser":true}`, 1))
	l.wait(2100 * time.Millisecond)
	l.want("kid stop")
}

func parseTS(s string) int64 {
	ts, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0
	}
	return ts.UnixMilli()
}
