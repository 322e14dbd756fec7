package claude

import (
	"encoding/json"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

const synthetic = "<synthetic>"

// final are the stop reasons that end an agent's run; all others, and none, mean that it still works.
var final = map[string]bool{"end_turn": true, "stop_sequence": true, "max_tokens": true, "refusal": true, "model_context_window_exceeded": true}

// output emits the blocks of one assistant record into a stream and says what kinds of blocks there were.
func (s *session) output(stream string, l *line) (text, tool bool) {
	x := adapters.Extra{UUID: l.uuid}
	if stream == adapters.Main {
		x.Usage = s.finalUsage(l)
	}
	emit := func(i int, t string, thinking bool) {
		before := len(s.c.Peek())
		s.c.Text(stream, s.Prompt, i, t, thinking, x)
		if len(s.c.Peek()) > before {
			s.sentUsage(x)
			x.Usage = nil
		}
	}
	if l.msg.text != "" {
		emit(0, l.msg.text, false)
		return true, false
	}
	for i, b := range l.msg.blocks {
		switch {
		case b.typ == "text":
			emit(i, b.text, false)
			text = text || strings.TrimSpace(b.text) != ""
		case b.typ == "thinking":
			emit(i, b.text, true)
		case b.typ == "tool_use" || b.typ == "server_tool_use" || b.typ == "mcp_tool_use":
			tool = true
			s.toolUse(stream, l, i, b, x)
			x.Usage = nil
		case strings.HasSuffix(b.typ, "_tool_result"):
			s.c.ToolEnd(stream, b.id) // of a server tool: both ends are in assistant records
		default:
			s.c.Count("block " + b.typ)
		}
	}
	return text, tool
}

func (s *session) toolUse(stream string, l *line, i int, b block, x adapters.Extra) {
	if spawns(b.name) && s.copied(stream, b.id) {
		return
	}
	if b.name == "EnterPlanMode" {
		// The app would switch its own permission mode at this tool's name.
		s.c.Speak(stream, s.Prompt)
		s.c.Service(stream, i, "Plan mode entered")
		s.Plan = s.Plan || stream == adapters.Main
		return
	}
	title, desc := describe(b.name, b.input)
	t := adapters.Tool{Call: b.id, Name: b.name, Title: title, Description: desc, Args: json.RawMessage(b.input)}
	if b.name == "Workflow" {
		t.Spawn, t.Group = true, l.msg.id
	}
	if spawns(b.name) {
		v := adapters.Fields(b.input, "prompt", "resume", "subagent_type")
		t.Spawn, t.PromptHash, t.Group = true, promptHash(adapters.String(v[0])), l.msg.id
		if t.Title == "" || t.Title == b.name {
			t.Title = adapters.String(v[2])
		}
		if id := adapters.String(v[1]); id != "" {
			if sub, ok := s.childOf(id); ok {
				t.Child, t.Subagent = id, sub // the call resumes a known child: its card shows that child
			}
		}
	}
	if s.c.ToolStart(stream, s.Prompt, i, t, x) {
		s.sentUsage(x)
		s.dirty = s.dirty || t.Spawn
	}
}

// copied says whether a call in a subagent's file is its parent's: a forked agent's file starts with a copy of the message that
// made it.
func (s *session) copied(stream, call string) bool {
	if stream == adapters.Main {
		return false
	}
	st := s.c.S.Streams[stream]
	if call == st.Target || call == st.Spawn {
		return true
	}
	sp := s.c.S.Spawns[call]
	return sp != nil && sp.Stream != stream
}

// finalUsage returns the usage to attach to this record's envelopes: the final count of an API message, once.
func (s *session) finalUsage(l *line) *protocol.Usage {
	if l.msg.id == "" || l.msg.model == synthetic || len(l.msg.usage) == 0 {
		return nil
	}
	if s.Usage == nil || s.Usage.Msg != l.msg.id {
		s.Usage = &usage{Msg: l.msg.id}
	}
	if !s.Usage.Sent {
		s.Usage.Count = parseUsage(l.msg.usage)
	}
	if l.msg.stop == "" || s.Usage.Sent {
		return nil // not final yet: the count would be too low
	}
	return s.Usage.Count
}

func (s *session) sentUsage(x adapters.Extra) {
	if x.Usage != nil && s.Usage != nil {
		s.Usage.Sent, s.Usage.Count = true, nil
	}
}

// flushUsage reports the last message's count where no visible envelope carried it.
func (s *session) flushUsage() {
	if u := s.Usage; u != nil && !u.Sent && u.Count != nil {
		s.c.Usage(u.Msg, u.Count)
		u.Sent, u.Count = true, nil
	}
}

func parseUsage(raw []byte) *protocol.Usage {
	v := adapters.Fields(raw, "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "service_tier")
	if v[0] == nil || v[1] == nil {
		return nil
	}
	u := &protocol.Usage{InputTokens: max(0, adapters.Int(v[0])), OutputTokens: max(0, adapters.Int(v[1])), ServiceTier: adapters.String(v[4])}
	opt := func(raw []byte) *int64 {
		if raw == nil {
			return nil
		}
		n := max(0, adapters.Int(raw))
		return &n
	}
	u.CacheCreationInputTokens, u.CacheReadInputTokens = opt(v[2]), opt(v[3])
	return u
}

// errorText is what an API error record says.
func errorText(l *line) string {
	if l.msg.text != "" {
		return l.msg.text
	}
	for _, b := range l.msg.blocks {
		if b.typ == "text" {
			return b.text
		}
	}
	return ""
}

// mapMainAssistant maps one assistant record of the main thread.
func (s *session) mapMainAssistant(l *line) {
	if l.msg.model == synthetic && !l.apiError {
		if strings.HasPrefix(errorText(l), "No response requested") || errorText(l) == "" {
			// Filler of a client that resumes: where a turn is still open, its process died in the middle.
			s.endTurn(s.closingStatus(protocol.StatusFailed))
			return
		}
	}
	if s.Pending != nil && s.Pending.Msg != l.msg.id {
		s.Pending = nil // it goes on
	}
	if l.apiError {
		s.c.Speak(adapters.Main, s.Prompt)
		if t := errorText(l); strings.HasPrefix(t, "Claude AI usage limit reached|") {
			s.c.Text(adapters.Main, s.Prompt, 0, t, false, adapters.Extra{}) // the app shows it as a limit
		} else {
			s.c.Service(adapters.Main, 0, t)
		}
		s.arm(l, protocol.StatusFailed, graceError)
		return
	}
	text, tool := s.output(adapters.Main, l)
	if text || tool {
		s.LastText = text && !tool && l.msg.stop == "" && !l.aborted
	}
	switch {
	case tool:
		s.Pending = nil
	case final[l.msg.stop] && !l.aborted && s.c.S.Turn != nil:
		s.arm(l, protocol.StatusCompleted, graceStop)
	case l.msg.stop != "" || text:
		s.Pending = nil
	}
}

// arm announces the turn's end.
func (s *session) arm(l *line, status protocol.Status, grace int64) {
	s.Pending = &pending{Status: status, TS: l.ts, At: s.c.Now(), Grace: grace, Msg: l.msg.id}
}

// endTurn closes the open turn; foreground children end with it.
func (s *session) endTurn(status protocol.Status) {
	s.Pending = nil
	if s.c.S.Turn == nil {
		return
	}
	s.endSpawns(adapters.Main)
	if status != protocol.StatusFailed {
		s.flushUsage() // an answer that broke off has no final count, and its turn ends with the error
	}
	s.c.EndTurn(status)
	s.LastText, s.Died = false, false
}
