package claude

import (
	"fmt"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// mapSystem maps what the client itself logs.
func (s *session) mapSystem(l *line) {
	switch l.subtype {
	case "turn_duration":
		if s.c.OpenCalls(adapters.Main) > 0 {
			s.c.Count("late turn_duration") // that of an earlier turn, held back while its agents ran
			return
		}
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
	case "agents_killed":
		s.kill(l, "")
	case "local_command":
		text := adapters.String(l.content)
		if cmd, ok := command(text); ok {
			s.settled()
			s.c.User(0, cmd, adapters.Extra{UUID: l.uuid})
		} else {
			s.localOutput(text)
		}
	case "informational":
		if l.level == "notice" || l.level == "warning" || l.level == "error" {
			s.c.Service(adapters.Main, 0, plain(adapters.String(l.content)))
		}
	}
}

// mapAttachment maps prompts that the agent took up in the middle of a run, and the plan mode; all other attachments stay.
func (s *session) mapAttachment(l *line) {
	v := adapters.Fields(l.attachment, "type", "prompt", "commandMode", "origin", "hookEvent")
	switch adapters.String(v[0]) {
	case "queued_command":
		origin := adapters.String(adapters.Fields(v[3], "kind")[0])
		text := contentText(v[1])
		if mode := adapters.String(v[2]); mode != "" && mode != "prompt" || origin != "" && origin != "human" || isNote(text, origin) || fromMate(text, origin) {
			return
		}
		text = humanText(text)
		s.c.User(0, text, adapters.Extra{UUID: l.uuid})
		s.goesOn()
	case "plan_mode":
		// It is written again as a reminder.
		if !s.Plan && s.c.Service(adapters.Main, 0, "Plan mode on") {
			s.Plan = true
		}
	case "plan_mode_exit":
		s.Plan = false
	case "hook_blocking_error":
		if ev := adapters.String(v[4]); ev != "Stop" && ev != "SubagentStop" {
			s.c.Service(adapters.Main, 0, "A hook blocked this ("+ev+")")
		}
	}
}
