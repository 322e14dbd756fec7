package claude

import (
	"fmt"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// mapMain maps one record of the main thread.
func (s *session) mapMain(l *line) {
	s.lapse(l)
	switch l.typ {
	case "user":
		s.mapMainUser(l)
	case "assistant":
		s.mapMainAssistant(l)
	case "system":
		s.mapSystem(l)
	case "attachment":
		s.mapAttachment(l)
	case "queue-operation":
		s.mapQueue(l)
	case "pr-link":
		v := adapters.Fields(l.raw, "prNumber", "prUrl")
		if url := adapters.String(v[1]); url != "" {
			s.c.Service(adapters.Main, 0, fmt.Sprintf("Pull request #%d: %s", adapters.Int(v[0]), url))
		}
	}
}

// lapse closes a turn whose announced end nothing contradicted in time, as the timestamps tell: so that reading afterwards decides
// as the clock did.
func (s *session) lapse(l *line) {
	if s.pendingAt() != 0 && l.ts-s.Pending.TS > s.Pending.Grace && s.Pending.Msg != l.msg.id {
		s.endTurn(s.Pending.Status)
	}
}

// mapMainUser maps a user record of the main thread: results of tools, interrupts, prompts, and much that only looks like a
// prompt.
func (s *session) mapMainUser(l *line) {
	if l.hidden {
		return // a compaction's recap
	}
	results, open := false, false
	var texts []string
	images := 0
	for _, b := range l.msg.blocks {
		switch b.typ {
		case "tool_result":
			results = true
			open = open || s.c.CallOpen(adapters.Main, b.id)
			s.result(adapters.Main, l, b)
		case "text":
			texts = append(texts, b.text)
		case "image":
			images++
		}
	}
	if l.msg.text != "" {
		texts = append(texts, l.msg.text)
	}
	if open {
		s.Pending = nil // a tool's result continues the run
	}
	if results {
		s.answers(l)
	}
	text := strings.Join(texts, "\n")
	if l.meta {
		// The harness talks to the model: what comes next continues the run, unless it only announces a local command.
		if !results && !strings.Contains(text, "<local-command-caveat>") {
			s.hold(l)
		}
		return
	}
	for _, t := range texts {
		if isInterrupt(t) {
			s.endTurn(protocol.StatusCancelled)
			return
		}
	}
	if results && s.deniedByInterrupt(l) {
		s.endTurn(protocol.StatusCancelled)
		return
	}
	if results {
		s.feedback(l)
	}
	if text == "" && images == 0 {
		return
	}
	switch trimmed := strings.TrimSpace(text); {
	case isNote(text, l.origin):
		s.newRun(l) // what it tells was taken when it arrived
	case l.origin != "" && l.origin != "human", fromMate(text, l.origin):
		s.newRun(l)
		s.c.Count("message of another agent")
	case strings.HasPrefix(trimmed, "<command-name>"), strings.HasPrefix(trimmed, "<command-message>"):
		if cmd, ok := command(text); !ok {
			s.c.Count("command without a name")
		} else if isLocal(cmd) {
			s.settled()
			s.c.User(0, cmd, adapters.Extra{UUID: l.uuid}) // the client answers it by itself: no run starts
		} else {
			s.prompt(l, cmd, false)
		}
	case strings.HasPrefix(trimmed, "<local-command-stdout>"), strings.HasPrefix(trimmed, "<local-command-stderr>"):
		s.localOutput(text)
	case strings.HasPrefix(trimmed, "<bash-input>"):
		in, _ := between(text, "bash-input")
		s.prompt(l, "!"+strings.TrimSpace(in), false)
	case strings.HasPrefix(trimmed, "<bash-stdout>"), strings.HasPrefix(trimmed, "<bash-stderr>"):
		s.c.Count("shell output")
	case strings.HasPrefix(text, "This session is being continued from a previous conversation"):
		// Old versions do not flag the recap.
	default:
		text = humanText(text)
		for range images {
			text = strings.TrimSpace(text + "\n[image]")
			s.c.Count("image")
		}
		s.prompt(l, text, true)
	}
}

// newRun closes what is open because the agent is woken by something else than its user.
func (s *session) newRun(l *line) {
	s.supersede()
	s.setPrompt(l.prompt)
}

// supersede closes the open turn because a new run starts.
func (s *session) supersede() {
	if s.c.S.Turn == nil {
		s.Pending = nil
		return
	}
	s.endTurn(s.closingStatus(protocol.StatusCancelled))
}

// settled closes the open turn where its end was announced, or an old client had said its last words. What is in the middle of
// its work goes on.
func (s *session) settled() {
	if s.Pending != nil || s.LastText && s.c.OpenCalls(adapters.Main) == 0 {
		s.endTurn(s.closingStatus(protocol.StatusCompleted))
	}
}

// closingStatus is the status of a turn that nothing but the next event ends: as announced; completed where an old client,
// which logs no stop reasons, had said its last words; else what the event means.
func (s *session) closingStatus(otherwise protocol.Status) protocol.Status {
	switch {
	case s.Pending != nil:
		return s.Pending.Status
	case s.LastText && s.c.OpenCalls(adapters.Main) == 0:
		return protocol.StatusCompleted
	}
	return otherwise
}

func (s *session) setPrompt(id string) {
	if id == "" || id == s.Prompt {
		return
	}
	s.Prompt = id
	s.Prompts = append(s.Prompts, id)
	if len(s.Prompts) > maxPrompts {
		s.Prompts = append(s.Prompts[:0], s.Prompts[len(s.Prompts)-maxPrompts:]...)
	}
}

// prompt maps what the user typed to start a run.
func (s *session) prompt(l *line, text string, title bool) {
	if text == "" {
		return
	}
	if s.Absorbed != "" && s.Absorbed == promptHash(text) {
		s.Absorbed = "" // shown already when it left the queue
		return
	}
	s.supersede()
	s.setPrompt(l.prompt)
	s.c.User(0, text, adapters.Extra{UUID: l.uuid})
	if title {
		s.setTitle(2, text)
	}
}

// result closes a tool call.
func (s *session) result(stream string, l *line, b block) {
	if sp := s.c.S.Spawns[b.id]; sp != nil && sp.Stream == stream && !launched(l, b) {
		s.over(sp)
		if sp.Child != "" && sp.Hold != 0 {
			s.stop(sp.Child) // its end was read, or waited for long enough
			s.dropInline(sp.Child)
		}
	}
	s.c.ToolEnd(stream, b.id)
}

// deniedByInterrupt finds the interrupt marker at the end of an error result, where versions up to 2.1.112 put it.
func (s *session) deniedByInterrupt(l *line) bool {
	for _, b := range l.msg.blocks {
		if b.typ == "tool_result" && b.isError {
			t := strings.TrimSpace(contentText(b.content))
			if strings.HasSuffix(t, interruptedTool) || strings.HasSuffix(t, interrupted) {
				return true
			}
		}
	}
	return false
}

// hold keeps an announced end from firing by itself: the harness sent the model on.
func (s *session) hold(l *line) {
	if p := s.Pending; p != nil && l.ts-p.TS <= p.Grace {
		p.Held = true
	}
}

func (s *session) localOutput(text string) {
	var out []string
	for _, tag := range []string{"local-command-stdout", "local-command-stderr"} {
		if t, ok := between(text, tag); ok && plain(t) != "" {
			out = append(out, plain(t))
		}
	}
	s.c.Service(adapters.Main, 0, strings.Join(out, "\n"))
}
