package codex

import (
	"sort"
	"strconv"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// A turn of the main thread is a turn of the session; a turn of a spawned thread is one run of its subagent, from start to stop.

// open says whether the thread's turn is open.
func (s *session) open() bool { return s.isOpen(s.stream) }

func (s *session) isOpen(stream string) bool {
	if stream == adapters.Main {
		return s.c.S.Turn != nil
	}
	st := s.c.S.Streams[stream]
	return st != nil && st.Running
}

// speak makes sure that the agent may say something: where no turn was announced, its output opens one.
func (s *session) speak() bool {
	if !s.open() {
		s.th.Lazy, s.th.Turn, s.th.Calls, s.th.Fail = true, "", nil, ""
	}
	return s.c.Speak(s.stream, s.th.Turn)
}

// startTurn opens an announced turn; one that is still open was left by a process that died, or was replaced.
func (s *session) startTurn(id string) {
	if s.open() {
		s.endTurn(s.closing(protocol.StatusCancelled))
	}
	s.th.Turn, s.th.Lazy, s.th.Calls, s.th.Fail, s.th.Texted = id, false, nil, "", false
	s.c.Speak(s.stream, id)
	if s.th.Note != "" {
		s.c.Service(s.stream, s.next(), s.th.Note)
		s.th.Note = ""
	}
}

// closing is the status of a turn that nothing but the next event ends.
func (s *session) closing(otherwise protocol.Status) protocol.Status {
	if s.th.Lazy && s.th.Texted && len(s.th.Pending) == 0 && s.c.OpenCalls(s.stream) == 0 {
		return protocol.StatusCompleted
	}
	return otherwise
}

// endTurn closes the thread's open turn.
func (s *session) endTurn(status protocol.Status) {
	if !s.open() {
		s.th.Pending = nil
		return
	}
	s.flushPending()
	if s.stream == adapters.Main {
		s.flushUsage()
		s.c.EndTurn(status)
	} else {
		s.c.Stop(s.stream)
	}
	s.th.Turn, s.th.Lazy, s.th.Texted, s.th.Fail, s.th.Prompt, s.th.Viewed = "", false, false, "", false, 0
}

// ended closes the turn because the log says so; what still comes of it is late.
func (s *session) ended(l *line, status protocol.Status) {
	for _, id := range []string{s.th.Turn, l.turnID()} {
		if id != "" && !s.late(id) {
			s.th.Closed = append(s.th.Closed, id)
		}
	}
	if n := len(s.th.Closed) - maxClosed; n > 0 {
		s.th.Closed = append(s.th.Closed[:0], s.th.Closed[n:]...)
	}
	s.th.End = max(s.th.End, l.ts)
	s.endTurn(status)
}

// late says whether the log has closed a turn already.
func (s *session) late(turn string) bool {
	for _, id := range s.th.Closed {
		if id == turn && turn != "" {
			return true
		}
	}
	return false
}

// dropLate counts a record of a turn that is over.
func (s *session) dropLate(l *line) bool {
	if !s.late(l.turnID()) {
		return false
	}
	s.c.Count("late record")
	return true
}

// user shows what a person said. In the main thread it may start a run. A spawned thread's first message is its task, which
// stands on its card; later ones are shown as lines, because they may come from the spawner.
func (s *session) user(text string, images int, item string) {
	text = withImages(strings.TrimSpace(text), images)
	if text == "" {
		return
	}
	if s.th.Viewed > 0 && images > 0 && strings.HasPrefix(text, "[image]") {
		s.th.Viewed--
		return // what view_image looked at, handed to the model as if the user had sent it
	}
	if images > 0 {
		s.c.Count("image")
	}
	h := adapters.Hash("prompt", text)
	if s.th.Review && h == s.th.User {
		return // a review's prompt is logged twice
	}
	s.th.User, s.th.Compact = h, false
	if s.open() && s.th.Lazy {
		s.endTurn(s.closing(protocol.StatusCancelled))
	}
	s.th.Prompt = s.open()
	if s.stream == adapters.Main {
		s.c.User(s.next(), text, adapters.Extra{ItemID: protocol.CleanText(item)})
		if images == 0 || !strings.HasPrefix(text, "[image]") {
			s.setPrompt(text)
		}
		return
	}
	if !s.th.Asked {
		s.th.Asked = true
		return
	}
	s.lazyOpen()
	s.c.Service(s.stream, s.next(), text)
}

// lazyOpen is speak for what is not the agent's output.
func (s *session) lazyOpen() {
	if !s.open() {
		s.speak()
	}
}

// say shows what the agent says or thinks.
func (s *session) say(text string, thinking bool, item string) {
	if strings.TrimSpace(text) == "" || !s.speak() {
		return
	}
	before := len(s.c.Peek())
	s.c.Text(s.stream, s.th.Turn, s.next(), text, thinking, s.extra(item))
	if len(s.c.Peek()) > before {
		s.sentUsage()
	}
	if !thinking {
		s.th.Texted = true
	} else if s.l.kind != kindResponse { // there it may be the late twin of what came before the text
		s.th.Texted = false
	}
	s.th.Compact = false
}

// service shows a condition inside the open turn.
func (s *session) service(text string) { s.c.Service(s.stream, s.next(), text) }

// compacted tells of a compaction once, in whichever two ways it is logged.
func (s *session) compacted() {
	if s.th.Compact {
		return
	}
	s.th.Compact = true
	if s.open() {
		s.service("Context compacted")
	}
}

func (s *session) extra(item string) adapters.Extra {
	x := adapters.Extra{ItemID: protocol.CleanText(item)}
	if s.stream == adapters.Main {
		x.Usage = s.pendingUsage()
	}
	return x
}

// callID makes a call id unique among the threads: gateways count calls anew in each.
func (s *session) callID(id string) string {
	if id == "" || s.stream == adapters.Main {
		return id
	}
	return id + "." + protocol.SubagentID(Name, s.stream)[:16]
}

// startCall shows a tool call.
func (s *session) startCall(t adapters.Tool) {
	if t.Call == "" {
		t.Call = "call-" + strconv.FormatUint(adapters.Hash(s.c.Ident(), strconv.Itoa(s.ord)), 36)
	}
	t.Call = s.callID(t.Call)
	if !s.speak() {
		return
	}
	if s.c.ToolStart(s.stream, s.th.Turn, s.next(), t, s.extra("")) {
		s.sentUsage()
	}
	s.th.Texted, s.th.Compact = false, false
}

// endCall ends a call, if it is open.
func (s *session) endCall(id string) { s.c.ToolEnd(s.stream, s.callID(id)) }

// once shows a call of which only the finished form is logged.
func (s *session) once(t adapters.Tool) {
	if t.Call == "" {
		t.Call = "call-" + strconv.FormatUint(adapters.Hash(s.c.Ident(), "once"), 36)
	}
	s.startCall(t)
	s.endCall(t.Call)
}

// saw notes a call id of this turn and says whether it is new.
func (s *session) saw(id string) bool {
	if s.th.Calls[id] {
		return false
	}
	if s.th.Calls == nil || len(s.th.Calls) >= maxCalls {
		s.th.Calls = map[string]bool{}
	}
	s.th.Calls[id] = true
	return true
}

// hold keeps a call until it is clear how to show it.
func (s *session) hold(t adapters.Tool, spawn bool) {
	s.lazyOpen()
	if s.th.Pending == nil {
		s.th.Pending = map[string]*call{}
	}
	n := 0
	for _, c := range s.th.Pending {
		n = max(n, c.N+1)
	}
	s.th.Pending[t.Call] = &call{Tool: t, Spawn: spawn, N: n}
}

// flushPending shows the held calls of a turn that ends: nothing more will tell of them.
func (s *session) flushPending() {
	ids := make([]string, 0, len(s.th.Pending))
	for id := range s.th.Pending {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return s.th.Pending[ids[i]].N < s.th.Pending[ids[j]].N })
	for _, id := range ids {
		c := s.th.Pending[id]
		delete(s.th.Pending, id)
		if !c.Nested {
			s.ident("held:"+s.stream+":"+s.th.Turn+":"+id, func() { s.startCall(c.Tool) })
		}
	}
}

// ident runs fn with another identity than the record's: what the clock decides has no record.
func (s *session) ident(id string, fn func()) {
	was := s.c.Ident()
	if was != "" {
		fn()
		return
	}
	s.c.Begin(id, 0, s.Now)
	fn()
	s.c.SetNow(s.Now)
}
