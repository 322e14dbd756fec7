package claude_test

import (
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// huge feeds a record as the reader hands over one that is too long: its two ends.
func (l *live) huge(stream, head, tail string) {
	path := "log-" + stream
	r := watch.Record{Path: path, Offset: l.off[stream], Next: l.off[stream] + 20<<20, Data: []byte(head), Tail: []byte(tail), Size: 20 << 20, Oversize: true}
	l.off[stream] = r.Next
	l.pump.Feed(adapters.Place{Session: "s", Stream: stream}, r, l.now)
	l.take()
}

func TestHugeRecords(t *testing.T) {
	fill := strings.Repeat("x", 1000)
	l := newLive(t)
	l.line("", prompt)
	// A call with a huge input: its name and id stand in front of it, its type behind it.
	l.huge("", `{"parentUuid":"u1","isSidechain":false,"message":{"id":"msg_h","role":"assistant","content":[{"type":"tool_use","id":"toolu_huge_huge_huge_1","name":"Write","input":{"content":"`+fill,
		fill+`"}}],"stop_reason":"tool_use"},"type":"assistant","uuid":"h1","timestamp":"2026-03-02T10:00:00.100Z"}`)
	l.want("text go", "turn-start", "tool-call-start")
	// Its result.
	l.huge("", `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_huge_huge_huge_1","type":"tool_result","content":"`+fill, fill+`"}]},"uuid":"h2"}`)
	l.want("tool-call-end")
	// The same of a subagent.
	l.line("", spawn)
	l.meta("k", kidMeta)
	l.line("k", kidStart)
	l.line("k", strings.NewReplacer("a3", "k9").Replace(bash))
	l.envs = nil
	l.huge("k", `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_bash_bash_bash_1","type":"tool_result","content":"`+fill, fill+`"}]},"uuid":"h3"}`)
	l.want("kid tool-call-end")
	// A huge prompt is told, a huge note of the harness and a recap are not; other types are counted.
	l.huge("", `{"type":"user","message":{"role":"user","content":"`+fill, fill+`"},"isMeta":true,"uuid":"h4"}`)
	l.huge("", `{"type":"user","message":{"role":"user","content":"`+fill, fill+`"},"isCompactSummary":true,"uuid":"h5"}`)
	l.huge("", `{"parentUuid":null,"attachment":{"type":"queued_command","prompt":"`+fill, fill+`"},"type":"attachment","uuid":"h6"}`)
	l.want()
	l.huge("", `{"type":"user","message":{"role":"user","content":"`+fill, fill+`"},"uuid":"h7"}`)
	l.want("tool-call-end", "turn-end cancelled", "text [a message too long to show]")
	if n := l.pump.Session().Status().Counts["oversize attachment"]; n != 1 {
		t.Errorf("counted %d", n)
	}
}
