package claude_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/internal/streamcheck"
)

// TestStateStaysSmall runs a session that goes on for weeks: thousands of agents in the foreground and background, prompts, queued
// texts, titles and records without uuid.
func TestStateStaysSmall(t *testing.T) {
	l := newLive(t)
	const n = 900 // above all limits
	var sizes []int
	for i := range n {
		num := fmt.Sprintf("%06d", i)
		r := strings.NewReplacer("u1", "u1"+num, "u2", "u2"+num, "a1", "a1"+num, "a2", "a2"+num, "p1", "p"+num,
			"k1", "k1"+num, "k2", "k2"+num, "k3", "k3"+num, `"k"`, `"a`+num+`"`, "toolu_spawn_spawn_1", "toolu_spawn_"+num, "m1", "m1"+num, "m2", "m2"+num, `"do"`, `"do `+num+`"`)
		kid := "a" + num
		l.line("", r.Replace(prompt))
		l.line("", r.Replace(spawn))
		l.meta(kid, r.Replace(kidMeta))
		l.line(kid, r.Replace(kidStart))
		l.line(kid, r.Replace(kidDone))
		switch i % 3 {
		case 0:
			l.line("", r.Replace(returned))
		case 1:
			l.line("", r.Replace(strings.Replace(returned, `"completed"`, `"async_launched"`, 1)))
			l.line("", r.Replace(`{"type":"user","uuid":"n`+num+`","timestamp":"TS","origin":{"kind":"task-notification"},"message":{"content":"<task-notification><task-id>`+kid+`</task-id><tool-use-id>toolu_spawn_`+num+`</tool-use-id><status>completed</status></task-notification>"}}`))
		case 2:
			l.line("", r.Replace(strings.Replace(returned, `"toolUseResult"`, `"x"`, 1))) // nothing but the sidecar names it
		}
		l.line("", `{"type":"queue-operation","operation":"enqueue","timestamp":"TS","content":"`+strings.Repeat("text ", 200)+`"}`)
		l.line("", `{"type":"custom-title","customTitle":"title `+num+`"}`)
		l.line("", r.Replace(answer))
		l.meta("never-seen-"+num, `{"toolUseId":"x`+num+`","agentType":"x"}`)
		for range 3 {
			l.now += 1000
			l.pump.Tick(l.now, true)
			l.take()
		}
		if i%(n/3) == n/3-1 {
			s, err := l.pump.Save()
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(s))
		}
	}
	for _, bad := range streamcheck.Check(l.envs) {
		t.Error(bad)
	}
	if open := streamcheck.Open(l.envs); len(open) > 0 {
		t.Error("left open:", open)
	}
	if last := sizes[len(sizes)-1]; last > 300<<10 {
		t.Errorf("the state has %d bytes; it grew %v", last, sizes)
	}
	t.Logf("state %v bytes", sizes)

	// A forgotten agent that is woken again is left out.
	l.envs = nil
	l.line("a000000", strings.ReplaceAll(kidDone, "k3", "k999"))
	l.wait(time.Second)
	l.want()
}
