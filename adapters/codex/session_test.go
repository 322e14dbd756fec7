package codex_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

const (
	idRoot  = "019b7db8-7800-7000-8000-000000000001"
	idChild = "019b7db8-7be8-7000-8000-000000000002"
	t0      = int64(1767340800000)
)

// A bench feeds one session record by record with a clock in the test's hand.
type bench struct {
	t    *testing.T
	pump *bridge.Pump
	seen seenSet
	now  int64
	offs map[string]int64
	out  []protocol.Envelope
	mem  map[string][]watch.Record
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, seen: seenSet{}, now: t0, offs: map[string]int64{}, mem: map[string][]watch.Record{}}
	b.open(nil)
	return b
}

func (b *bench) open(saved []byte) {
	reread := func(path string, from, to int64, fn func(watch.Record) error) error {
		for _, r := range b.mem[path] {
			if r.Offset >= from && r.Offset < to {
				if err := fn(r); err != nil {
					return err
				}
			}
		}
		return nil
	}
	pump, err := bridge.NewPump(codex.NewProvider(), adapters.SessionOptions{ID: idRoot, Tag: "tag", Seen: b.seen}, buffer.New(buffer.NewBudget(1<<20), reread), saved)
	if err != nil {
		b.t.Fatal(err)
	}
	b.pump = pump
}

func (b *bench) take() {
	envs, _ := b.pump.Take()
	b.out = append(b.out, envs...)
}

func place(stream, seg string) adapters.Place {
	id := stream
	p := adapters.Place{Session: idRoot, Stream: stream}
	if stream == adapters.Main {
		id = idRoot
	} else {
		p.Group = idRoot
	}
	p.Key = id + seg
	return p
}

// feed reads a line of a thread's file; at is in ms after t0.
func (b *bench) feed(p adapters.Place, at int64, kind, payload string) {
	b.raw(p, fmt.Sprintf(`{"timestamp":"2026-01-02T08:%02d:%02d.%03dZ","type":"%s","payload":%s}`, at/60000, at/1000%60, at%1000, kind, payload), watch.Record{})
}

func (b *bench) raw(p adapters.Place, line string, r watch.Record) {
	r.Path, r.Data, r.Offset, r.Sum = p.Key, []byte(line), b.offs[p.Key], sha256.Sum256([]byte(line))
	b.offs[p.Key] += int64(len(line)) + 1
	r.Next = b.offs[p.Key]
	b.mem[p.Key] = append(b.mem[p.Key], r)
	b.pump.Feed(p, r, b.now)
	b.take()
}

// pass lets time pass, with all files read.
func (b *bench) pass(ms int64) {
	b.now += ms
	b.pump.Tick(b.now, true)
	b.take()
}

func (b *bench) observe(o adapters.Observation) {
	b.pump.Observe(o, b.now)
	b.take()
}

// expect compares the stream so far, in the short form, and checks its validity.
func (b *bench) expect(want ...string) {
	b.t.Helper()
	var got []string
	for _, e := range b.out {
		s := string(e.Ev.T)
		switch e.Ev.T {
		case protocol.TypeText, protocol.TypeService:
			s += " " + e.Ev.Text
		case protocol.TypeTurnEnd:
			s += " " + string(e.Ev.Status)
		case protocol.TypeToolStart, protocol.TypeToolEnd:
			s = strings.TrimPrefix(s, "tool-") + " " + e.Ev.Call
		}
		if e.Role == protocol.RoleUser {
			s = "user " + s
		}
		if e.Subagent != "" {
			s = "> " + s
		}
		got = append(got, s)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	for _, bad := range streamcheck.Check(b.out) {
		b.t.Error(bad)
	}
}

func (b *bench) main(at int64, kind, payload string) { b.feed(place("", ""), at, kind, payload) }

func (b *bench) head(extra string) {
	b.main(0, "session_meta", `{"id":"`+idRoot+`","cwd":"/srv/garden","originator":"codex-tui","cli_version":"0.171.0","source":"cli"`+extra+`}`)
}

func (b *bench) childHead(at int64) {
	b.feed(place(idChild, ""), at, "session_meta", `{"id":"`+idChild+`","session_id":"`+idRoot+`","timestamp":"2026-01-02T08:00:01.000Z","source":{"subagent":{"thread_spawn":{"parent_thread_id":"`+idRoot+`","depth":1,"agent_nickname":"Fern"}}}}`)
}

const (
	started   = `{"type":"task_started","turn_id":"t1"}`
	completed = `{"type":"task_complete","turn_id":"t1","last_agent_message":"x"}`
	spawnCall = `{"type":"function_call","name":"spawn_agent","arguments":"{\"message\":\"dig\"}","call_id":"c1"}`
	spawnOut  = `{"type":"function_call_output","call_id":"c1","output":"{\"agent_id\":\"` + idChild + `\"}"}`
)

func prompt(text string) string { return `{"type":"user_message","message":"` + text + `"}` }
func answer(text string) string { return `{"type":"agent_message","message":"` + text + `"}` }

func TestProcessDeathFailsTheTurn(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "event_msg", answer("hi"))
	b.observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: adapters.Process{Alive: false}})
	b.pass(100)
	b.expect("turn-start", "text hi")
	b.pass(3000)
	b.expect("turn-start", "text hi", "turn-end failed")
	if w := b.pump.Wake(); w != 0 {
		t.Errorf("still wakes at %d", w)
	}
	// The log goes on: the process was not dead after all.
	b.main(3, "event_msg", answer("again"))
	b.pass(10_000)
	b.expect("turn-start", "text hi", "turn-end failed", "turn-start", "text again")
}

func TestIdleRuleEndsUnannouncedTurns(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", prompt("dig"))
	b.main(2, "event_msg", answer("dug"))
	b.pass(59_000)
	b.expect("user text dig", "turn-start", "text dug")
	b.pass(2_000)
	b.expect("user text dig", "turn-start", "text dug", "turn-end completed")
}

func TestPromptWaitsForItsLayer(t *testing.T) {
	item := `{"type":"message","role":"user","content":[{"type":"input_text","text":"dig"}]}`
	b := newBench(t)
	b.head("")
	b.main(1, "response_item", item)
	b.expect()
	b.main(2, "event_msg", prompt("dig"))
	b.expect("user text dig")

	b = newBench(t)
	b.head("")
	b.main(1, "response_item", item)
	saved, err := b.pump.Save()
	if err != nil {
		t.Fatal(err)
	}
	b.open(saved)
	b.main(2, "response_item", `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"dug"}]}`)
	b.expect("user text dig", "turn-start", "text dug")

	b = newBench(t)
	b.head("")
	b.main(1, "response_item", item)
	bridge.Settle(b.pump, b.now)
	b.take()
	b.expect("user text dig")
}

func TestChildIsHeldUntilItsCallIsShown(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.childHead(10)
	b.feed(place(idChild, ""), 11, "event_msg", started)
	b.feed(place(idChild, ""), 12, "event_msg", answer("dug"))
	b.feed(place(idChild, ""), 13, "event_msg", completed)
	b.main(2, "response_item", spawnCall)
	b.pass(5000)
	b.expect("turn-start")
	b.main(20, "response_item", spawnOut)
	b.expect("turn-start", "call-start c1", "call-end c1", "> start", "> text dug", "> stop")
}

func TestParentWaitsForTheEndItReports(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "response_item", spawnCall)
	b.main(3, "response_item", spawnOut)
	b.childHead(10)
	b.feed(place(idChild, ""), 11, "event_msg", started)
	b.main(20, "response_item", `{"type":"function_call_output","call_id":"c2","output":"{\"status\":{\"`+idChild+`\":{\"completed\":\"dug\"}}}"}`)
	b.main(21, "event_msg", answer("all dug"))
	b.expect("turn-start", "call-start c1", "call-end c1", "> start")
	b.feed(place(idChild, ""), 19, "event_msg", answer("dug"))
	b.feed(place(idChild, ""), 19, "event_msg", completed)
	b.pass(1)
	b.expect("turn-start", "call-start c1", "call-end c1", "> start", "> text dug", "> stop", "text all dug")
}

// After a restart files are read one after the other; what is shown keeps the order of the times.
func TestThreadsKeepTheOrderOfTheirTimes(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "response_item", spawnCall)
	b.main(3, "response_item", spawnOut)
	b.main(15, "event_msg", answer("meanwhile"))
	b.main(30, "event_msg", answer("at last"))
	b.childHead(10)
	b.feed(place(idChild, ""), 11, "event_msg", started)
	b.feed(place(idChild, ""), 20, "event_msg", answer("dug"))
	b.feed(place(idChild, ""), 40, "event_msg", answer("raked"))
	b.pass(1)
	b.expect("turn-start", "call-start c1", "call-end c1", "> start", "text meanwhile", "> text dug", "text at last", "> text raked")
}

func TestParentDoesNotWaitForEver(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "response_item", spawnCall)
	b.main(3, "response_item", spawnOut)
	b.childHead(10)
	b.main(20, "event_msg", `{"type":"item_completed","item":{"type":"SubAgentActivity","id":"x","kind":"completed","agent_thread_id":"`+idChild+`"}}`)
	b.main(21, "event_msg", answer("all dug"))
	b.pass(1000)
	b.expect("turn-start", "call-start c1", "call-end c1")
	b.pass(1500)
	b.expect("turn-start", "call-start c1", "call-end c1", "text all dug")
}

func TestClosedChildStops(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "response_item", spawnCall)
	b.main(3, "response_item", spawnOut)
	b.childHead(10)
	b.feed(place(idChild, ""), 11, "event_msg", started)
	b.main(20, "response_item", `{"type":"function_call","name":"close_agent","arguments":"{\"target\":\"`+idChild+`\"}","call_id":"c3"}`)
	b.pass(1000)
	b.expect("turn-start", "call-start c1", "call-end c1", "> start", "call-start c3")
	b.pass(2500)
	b.expect("turn-start", "call-start c1", "call-end c1", "> start", "call-start c3", "> stop")
}

func TestLostSpawnGetsACardOnceTheParentHasMovedOn(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.childHead(1000)
	b.feed(place(idChild, ""), 1001, "event_msg", started)
	b.feed(place(idChild, ""), 1002, "event_msg", answer("dug"))
	b.pass(60_000)
	b.expect("turn-start")
	b.main(5000, "event_msg", completed)
	b.pass(1)
	if n := len(b.out); n < 6 || b.out[3].Ev.T != protocol.TypeToolStart || b.out[3].Ev.Title != "Fern" {
		t.Errorf("%d envelopes", n)
	}
	card := "card-" + protocol.SubagentID("codex", idChild)
	b.expect("turn-start", "turn-end completed", "turn-start", "call-start "+card, "call-end "+card, "turn-end completed", "> start", "> text dug")
}

func TestRewrittenFileSaysNothingTwice(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "event_msg", prompt("dig"))
	b.main(3, "event_msg", answer("dug"))
	b.main(4, "event_msg", completed)
	want := []string{"turn-start", "user text dig", "text dug", "turn-end completed"}
	b.expect(want...)
	b.pump.Reset(idRoot, place("", ""))
	b.offs[idRoot] = 0
	ord := 0
	line := func(at int64, kind, payload string) {
		b.raw(place("", ""), fmt.Sprintf(`{"timestamp":"2026-01-02T08:00:00.%03dZ","ordinal":%d,"type":"%s","payload":%s}`, at, ord, kind, payload), watch.Record{})
		ord++
	}
	line(0, "session_meta", `{"id":"`+idRoot+`","cwd":"/srv/garden","cli_version":"0.171.0","source":"cli","history_mode":"paginated"}`)
	line(1, "event_msg", started)
	line(2, "event_msg", `{"type":"item_completed","turn_id":"t1","item":{"type":"UserMessage","id":"item-1","content":[{"type":"text","text":"dig"}]}}`)
	line(3, "event_msg", `{"type":"item_completed","turn_id":"t1","item":{"type":"AgentMessage","id":"item-2","content":[{"type":"Text","text":"dug"}]}}`)
	line(4, "event_msg", completed)
	b.expect(want...)
	line(50, "event_msg", `{"type":"task_started","turn_id":"t2"}`)
	line(51, "event_msg", `{"type":"item_completed","turn_id":"t2","item":{"type":"AgentMessage","id":"item-3","content":[{"type":"Text","text":"new"}]}}`)
	b.expect(append(want, "turn-start", "text new")...)
}

// The bridge may go on at the end of a rewritten file: then only what is new is read.
func TestRewrittenFileGoesOnAsItems(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "event_msg", answer("dug"))
	b.main(3, "event_msg", completed)
	for i, payload := range []string{
		`{"type":"task_started","turn_id":"t2"}`,
		`{"type":"item_completed","turn_id":"t2","item":{"type":"AgentMessage","id":"item-3","content":[{"type":"Text","text":"new"}]}}`,
	} {
		b.raw(place("", ""), fmt.Sprintf(`{"timestamp":"2026-01-02T08:00:01.000Z","ordinal":%d,"type":"event_msg","payload":%s}`, 40+i, payload), watch.Record{})
	}
	b.expect("turn-start", "text dug", "turn-end completed", "turn-start", "text new")
}

// The same file under another name, compressed or read again from its start repeats identities, not messages.
func TestReadAgainSaysNothingTwice(t *testing.T) {
	b := newBench(t)
	lines := func() {
		b.head("")
		b.main(1, "event_msg", started)
		b.main(2, "event_msg", answer("same"))
		b.main(3, "event_msg", answer("same"))
	}
	lines()
	b.pump.Reset(idRoot, place("", ""))
	b.offs[idRoot] = 0
	lines()
	b.expect("turn-start", "text same", "text same")
}

func TestReusedOrdinalIsNotLost(t *testing.T) {
	b := newBench(t)
	b.head(`,"history_mode":"paginated"`)
	for _, text := range []string{"one", "two"} {
		b.raw(place("", ""), `{"timestamp":"2026-01-02T08:00:01.000Z","ordinal":5,"type":"event_msg","payload":{"type":"item_completed","item":{"type":"AgentMessage","id":"m","content":[{"type":"Text","text":"`+text+`"}]}}}`, watch.Record{})
	}
	b.expect("turn-start", "text one", "text two")
}

func TestOversizeRecords(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.main(1, "event_msg", started)
	b.main(2, "response_item", `{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"seq\"}","call_id":"c1"}`)
	cut := func(payload, tail string) {
		b.raw(place("", ""), `{"timestamp":"2026-01-02T08:00:01.000Z","type":`+payload, watch.Record{Oversize: true, Tail: []byte(tail)})
	}
	cut(`"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"1 2 3`, `4"}}`)
	cut(`"event_msg","payload":{"type":"agent_message","message":"aaa`, `a"}}`)
	cut(`"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"echo`, `\"}","call_id":"c2"}}`)
	cut(`"compacted","payload":{"message":"x`, `"}]}}`)
	b.expect("turn-start", "call-start c1", "call-end c1", "text [a message too long to show]", "call-start c2", "service Context compacted")
}

func TestFacts(t *testing.T) {
	b := newBench(t)
	b.main(0, "session_meta", `{"id":"`+idRoot+`","cwd":"/srv/garden","originator":"happy-codex","cli_version":"0.142.5","source":"vscode","git":{"branch":"main"}}`)
	b.main(1, "turn_context", `{"cwd":"/srv/garden/bed","model":"gpt-5.5"}`)
	b.main(2, "event_msg", prompt("dig\\ndeep"))
	f := b.pump.Session().Facts()
	if f.Cwd != "/srv/garden" || f.LastCwd != "/srv/garden/bed" || f.GitBranch != "main" || f.Version != "0.142.5" || f.Model != "gpt-5.5" ||
		f.Title != "dig deep" || !f.HappyDriven || f.Native != idRoot || f.Entrypoint != "happy-codex" {
		t.Errorf("%+v", f)
	}
	b.observe(adapters.Observation{Kind: adapters.ObserveTitle, Data: []byte("The bed")})
	if f := b.pump.Session().Facts(); f.Title != "The bed" {
		t.Errorf("title %q", f.Title)
	}
	b.main(3, "event_msg", `{"type":"thread_name_updated","thread_name":"The deep bed"}`)
	if f := b.pump.Session().Facts(); f.Title != "The deep bed" {
		t.Errorf("title %q", f.Title)
	}
}

func TestHelperThreadsAreForgotten(t *testing.T) {
	b := newBench(t)
	b.head("")
	b.feed(place(idChild, ""), 1, "session_meta", `{"id":"`+idChild+`","session_id":"`+idRoot+`","source":{"subagent":{"other":"guardian"}}}`)
	b.feed(place(idChild, ""), 2, "event_msg", answer("hidden"))
	bridge.Settle(b.pump, b.now)
	b.take()
	b.expect()
	if n, _ := b.pump.Orphans(); n != 0 {
		t.Errorf("%d orphans", n)
	}
}
