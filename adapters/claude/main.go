package claude

import (
	"fmt"
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// mapMain maps one record of the main thread.
func (s *session) mapMain(l *line) {
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
	case "custom-title":
		s.setTitle(0, l.title)
	case "ai-title":
		s.setTitle(1, l.title)
	case "summary":
		// A summary often names another session's leaf.
		if l.leaf != "" && s.c.Known(l.leaf) {
			s.setTitle(1, l.title)
		}
	case "pr-link":
		v := adapters.Fields(l.raw, "prNumber", "prUrl")
		if url := adapters.String(v[1]); url != "" {
			s.c.Service(adapters.Main, 0, fmt.Sprintf("Pull request #%d: %s", adapters.Int(v[0]), url))
		}
	}
}

// mapMainUser maps a user record of the main thread: results of tools, interrupts, prompts, and much that only looks like a
// prompt.
func (s *session) mapMainUser(l *line) {
	if l.hidden {
		return // a compaction's recap
	}
	results := false
	var texts []string
	images := 0
	for _, b := range l.msg.blocks {
		switch b.typ {
		case "tool_result":
			results = true
			s.result(adapters.Main, b)
		case "text":
			texts = append(texts, b.text)
		case "image":
			images++
		}
	}
	if l.msg.text != "" {
		texts = append(texts, l.msg.text)
	}
	if results {
		s.disarmByResult()
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
	if text == "" && images == 0 {
		return
	}
	if n, ok := parseNote(text); ok || l.origin == "task-notification" {
		s.newRun(l)
		_ = n // its evidence was taken when it arrived
		return
	}
	switch trimmed := strings.TrimSpace(text); {
	case l.origin != "" && l.origin != "human",
		strings.Contains(text, "<teammate-message"), strings.HasPrefix(trimmed, "Another Claude session sent a message:"):
		s.newRun(l)
		s.c.Count("message of another agent")
	case strings.HasPrefix(trimmed, "<command-name>"), strings.HasPrefix(trimmed, "<command-message>"):
		if cmd, ok := command(text); ok {
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
func (s *session) result(stream string, b block) {
	if sp := s.c.S.Spawns[b.id]; sp != nil && sp.Stream == stream && sp.Child != "" {
		if sp.Hold != 0 {
			s.c.Stop(sp.Child) // its end was read, or waited for long enough
		}
	}
	s.c.ToolEnd(stream, b.id)
}

// disarmByResult forgets an announced end because a tool's result continues the run.
func (s *session) disarmByResult() { s.Pending = nil }

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

// answers shows what the user chose when the agent asked.
func (s *session) answers(l *line) {
	raw := adapters.Fields(l.result, "answers")[0]
	var lines []string
	adapters.ScanObject(raw, func(q, a []byte) bool {
		if t := adapters.String(a); t != "" {
			lines = append(lines, "**"+adapters.String(append(append([]byte{'"'}, q...), '"'))+"** "+t)
		}
		return true
	})
	sort.Strings(lines)
	s.c.Service(adapters.Main, 100, strings.Join(lines, "\n"))
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

// mapSystem maps what the client itself logs.
func (s *session) mapSystem(l *line) {
	switch l.subtype {
	case "turn_duration":
		s.endTurn(s.closingStatus(protocol.StatusCompleted))
	case "stop_hook_summary":
		v := adapters.Fields(l.raw, "preventedContinuation", "hookErrors", "stopReason")
		blocked := len(v[1]) > 2 && v[1][0] == '['
		switch {
		case adapters.Bool(v[0]):
			s.c.Service(adapters.Main, 0, strings.TrimSpace("Stopped by a hook. "+adapters.String(v[2])))
			s.arm(l, protocol.StatusCompleted, graceStop)
		case !blocked && s.c.S.Turn != nil && s.Pending == nil && s.c.OpenCalls(adapters.Main) == 0:
			s.arm(l, protocol.StatusCompleted, graceStop)
		}
	case "api_error":
		v := adapters.Fields(l.raw, "retryAttempt", "maxRetries")
		if n := adapters.Int(v[0]); n == 1 || n == 4 || n >= 8 && n&(n-1) == 0 {
			s.c.Service(adapters.Main, 0, fmt.Sprintf("API error, retrying (%d/%d)", n, adapters.Int(v[1])))
		}
	case "compact_boundary":
		s.c.Service(adapters.Main, 0, "Context compacted")
	case "local_command":
		text := adapters.String(l.content)
		if cmd, ok := command(text); ok {
			s.c.User(0, cmd, adapters.Extra{UUID: l.uuid})
		} else {
			s.localOutput(text)
		}
	case "informational":
		if l.level == "notice" || l.level == "warning" || l.level == "error" {
			s.c.Service(adapters.Main, 0, plain(adapters.String(l.content)))
		}
	default:
		s.c.Count("system " + l.subtype)
	}
}

// mapAttachment maps prompts that the agent took up in the middle of a run, and the plan mode; all other attachments stay.
func (s *session) mapAttachment(l *line) {
	v := adapters.Fields(l.attachment, "type", "prompt", "commandMode", "origin", "hookEvent")
	typ := adapters.String(v[0])
	switch typ {
	case "queued_command":
		origin := adapters.String(adapters.Fields(v[3], "kind")[0])
		if mode := adapters.String(v[2]); (mode != "" && mode != "prompt") || (origin != "" && origin != "human") {
			return
		}
		text := humanText(contentText(v[1]))
		if _, ok := parseNote(text); ok {
			return
		}
		s.c.User(0, text, adapters.Extra{UUID: l.uuid})
		s.goesOn()
	case "plan_mode":
		s.c.Service(adapters.Main, 0, "Plan mode on")
	case "hook_blocking_error":
		if ev := adapters.String(v[4]); ev != "Stop" && ev != "SubagentStop" {
			s.c.Service(adapters.Main, 0, "A hook blocked this ("+ev+")")
		}
	default:
		s.c.Count("attachment " + typ)
	}
}

// goesOn forgets an announced end that was not announced for long: the agent was given more to do.
func (s *session) goesOn() {
	if s.Pending != nil && s.Pending.Status == protocol.StatusCompleted {
		s.Pending.Held = true
	}
}

// mapQueue follows the queue of prompts typed while the agent works. Up to 2.1.96 a prompt that was taken up in the middle of
// a run leaves no other trace than its removal from here.
func (s *session) mapQueue(l *line) {
	text := contentText(l.content)
	switch l.operation {
	case "enqueue":
		s.Queue = append(s.Queue, text)
		if len(s.Queue) > 100 {
			s.Queue = s.Queue[1:]
		}
	case "dequeue":
		s.takeQueued(text)
	case "popAll":
		s.Queue = nil
	case "remove":
		t := s.takeQueued(text)
		if !versionBefore(s.c.S.Facts.Version, 2, 1, 97) {
			return
		}
		if _, ok := parseNote(t); ok || text != "" {
			return
		}
		if t = humanText(t); t != "" {
			s.c.User(0, t, adapters.Extra{})
			s.Absorbed = promptHash(t)
			s.goesOn()
		}
	}
}

// takeQueued removes the named prompt, or the oldest, from the queue.
func (s *session) takeQueued(text string) string {
	for i, q := range s.Queue {
		if text == "" || q == text {
			s.Queue = append(s.Queue[:i:i], s.Queue[i+1:]...)
			return q
		}
	}
	return text
}
