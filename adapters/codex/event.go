package codex

import (
	"fmt"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// mapEvent maps one event_msg.
func (s *session) mapEvent(l *line) {
	switch l.sub {
	case "task_started", "turn_started":
		s.startTurn(l.str("turn_id"))
	case "task_complete", "turn_complete":
		s.complete(l)
	case "turn_aborted":
		s.ended(l, protocol.StatusCancelled)
	case "user_message":
		if s.f.Layer == layerEvents {
			v := adapters.Fields(l.p, "images", "local_images")
			s.user(l.text(l.p, "message"), count(v[0])+count(v[1]), "")
		}
	case "agent_message":
		if s.f.Layer == layerEvents {
			s.say(l.text(l.p, "message"), false, "")
		}
	case "agent_reasoning":
		if s.f.Layer == layerEvents {
			s.say(l.text(l.p, "text"), true, "")
		}
	case "item_completed":
		s.mapItem(l)
	case "token_count":
		s.tokenCount(adapters.Fields(l.p, "info")[0])
	case "error":
		s.fail(l.str("message"))
	case "exec_command_end", "patch_apply_end", "mcp_tool_call_end", "view_image_tool_call", "dynamic_tool_call_response":
		s.callEvent(l)
	case "sub_agent_activity":
		v := adapters.Fields(l.p, "event_id", "kind", "agent_thread_id", "agent_path")
		s.activity(adapters.String(v[0]), adapters.String(v[1]), adapters.String(v[2]), adapters.String(v[3]))
	case "collab_agent_spawn_end":
		v := adapters.Fields(l.p, "call_id", "new_thread_id", "prompt")
		s.spawned(adapters.String(v[0]), adapters.String(v[1]), adapters.String(v[2]))
	case "collab_close_end", "collab_agent_close_end":
		s.closedBy(l.str("receiver_thread_id"))
	case "thread_name_updated":
		if s.stream == adapters.Main {
			s.setName(l.str("thread_name"))
		}
	default:
		s.mapNote(l.sub, l.p)
	}
}

// mapNote maps what is only told of, in events and items alike.
func (s *session) mapNote(what string, p []byte) {
	s.review(what)
	switch what {
	case "entered_review_mode", "EnteredReviewMode":
		text := strings.TrimSpace("Review started: " + adapters.String(adapters.Fields(p, "user_facing_hint")[0]))
		text = strings.TrimSuffix(text, ":")
		if s.open() && !s.th.Lazy {
			s.service(text)
		} else {
			s.th.Note = text
		}
	case "exited_review_mode", "ExitedReviewMode":
		if s.open() {
			s.service("Review finished")
		}
	case "context_compacted", "ContextCompaction":
		s.compacted()
	case "thread_rolled_back":
		if s.open() {
			s.endTurn(protocol.StatusCancelled)
		}
		s.service(fmt.Sprintf("Rolled back %d turns", adapters.Int(adapters.Fields(p, "num_turns")[0])))
	}
}

// review follows the review mode.
func (s *session) review(what string) {
	switch what {
	case "entered_review_mode", "EnteredReviewMode":
		s.th.Review, s.th.User = true, 0
	case "exited_review_mode", "ExitedReviewMode":
		s.th.Review = false
	}
}

// fail shows a turn's error, once.
func (s *session) fail(text string) {
	if text == "" {
		text = "The turn failed"
	}
	if s.th.Fail == text {
		return
	}
	if s.open() {
		s.service(text)
	}
	s.th.Fail = text
}

// complete ends a turn; from 0.146 on it says whether it failed.
func (s *session) complete(l *line) {
	status := protocol.StatusCompleted
	if e := adapters.Fields(l.p, "error")[0]; e != nil {
		s.fail(errorText(e))
	}
	// From 0.101 to 0.145 all that tells of a failure is that the prompt got no last word.
	silent := s.f.Silent && s.th.Prompt && !s.th.Review && string(lastWord(l)) == "null"
	if s.th.Fail != "" || silent {
		status = protocol.StatusFailed
	}
	s.ended(l, status)
}

// lastWord is the raw last_agent_message, nil where it is missing.
func lastWord(l *line) (raw []byte) {
	adapters.ScanObject(l.p, func(key, v []byte) bool {
		if string(key) == "last_agent_message" {
			raw = v
		}
		return true
	})
	return raw
}

// callEvent maps the finished form of a call in the event layer. Calls of scripts are logged in no other way.
func (s *session) callEvent(l *line) {
	id := l.callID()
	if s.th.Calls[id] || s.dropLate(l) {
		s.endCall(id)
		return
	}
	s.saw(id)
	switch l.sub {
	case "exec_command_end":
		v := adapters.Fields(l.p, "command", "cwd", "parsed_cmd")
		s.nested(s.bash(id, v[0], adapters.String(v[1]), v[2], ""))
	case "patch_apply_end":
		s.nested(patchTool(id, changesOf(adapters.Fields(l.p, "changes")[0])))
	case "mcp_tool_call_end":
		v := adapters.Fields(adapters.Fields(l.p, "invocation")[0], "server", "tool", "arguments")
		s.nested(plainTool(id, "mcp__"+adapters.String(v[0])+"__"+adapters.String(v[1]), v[2]))
	case "view_image_tool_call":
		s.nested(viewImage(id, l.str("path")))
	}
}

// nested shows a call that a script made.
func (s *session) nested(t adapters.Tool) {
	for _, c := range s.th.Pending {
		c.Nested = c.Nested || !c.Spawn
	}
	s.once(t)
}
