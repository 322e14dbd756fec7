package codex

import (
	"strings"

	"github.com/happyd/happyd/adapters"
)

// mapItem maps a finished item. Messages and reasoning are shown where the file shows its items; the others in every layer, as they
// have no other form there.
func (s *session) mapItem(l *line) {
	id := adapters.String(adapters.Fields(l.it, "id")[0])
	switch l.item {
	case "UserMessage", "AgentMessage", "Reasoning":
		if s.f.Layer == layerItems && !s.dropLate(l) {
			s.mapMessage(l, id)
		}
	case "Plan":
		if !s.dropLate(l) {
			s.say(l.text(l.it, "text"), false, id)
		}
	case "CollabAgentToolCall":
		s.collab(id, l.it)
	case "SubAgentActivity":
		v := adapters.Fields(l.it, "kind", "agent_thread_id", "agent_path")
		s.activity(id, adapters.String(v[0]), adapters.String(v[1]), adapters.String(v[2]))
	case "EnteredReviewMode", "ExitedReviewMode", "ContextCompaction":
		s.mapNote(l.item, l.it)
	default:
		s.itemCall(l, id)
	}
}

func (s *session) mapMessage(l *line, id string) {
	switch l.item {
	case "UserMessage":
		text, images := userParts(adapters.Fields(l.it, "content")[0])
		if text == "" && l.huge {
			text = tooLong
		}
		s.user(text, images, id)
	case "AgentMessage":
		text := parts(adapters.Fields(l.it, "content")[0], "")
		if text == "" && l.huge {
			text = tooLong
		}
		s.say(text, false, id)
	case "Reasoning":
		v := adapters.Fields(l.it, "summary_text", "raw_content")
		text := parts(v[0], "\n\n")
		if text == "" {
			text = parts(v[1], "\n\n")
		}
		s.say(text, true, id)
	}
}

// userParts reads the content of a user's item.
func userParts(raw []byte) (text string, images int) {
	var out []string
	adapters.Elements(raw, func(_ int, e []byte) bool {
		v := adapters.Fields(e, "type", "text")
		switch adapters.String(v[0]) {
		case "image", "local_image", "localImage":
			images++
		case "text":
			if t := adapters.String(v[1]); strings.TrimSpace(t) != "" {
				out = append(out, t)
			}
		}
		return true
	})
	return strings.Join(out, "\n"), images
}

// itemCall maps the finished form of a call: its end where the call itself was logged, else, for calls of scripts and commands that
// the user ran, both.
func (s *session) itemCall(l *line, id string) {
	if s.th.Calls[id] {
		s.endCall(id)
		return
	}
	if s.dropLate(l) {
		return
	}
	s.saw(id)
	it := l.it
	switch l.item {
	case "CommandExecution":
		v := adapters.Fields(it, "command", "cwd", "parsed_cmd")
		s.nested(s.bash(id, v[0], filePath(adapters.String(v[1])), v[2], ""))
	case "FileChange":
		s.nested(patchTool(id, changesOf(adapters.Fields(it, "changes")[0])))
	case "McpToolCall":
		v := adapters.Fields(it, "server", "tool", "arguments")
		s.nested(plainTool(id, "mcp__"+adapters.String(v[0])+"__"+adapters.String(v[1]), v[2]))
	case "DynamicToolCall":
		v := adapters.Fields(it, "tool", "arguments")
		s.nested(plainTool(id, adapters.String(v[0]), v[1]))
	case "WebSearch":
		v := adapters.Fields(it, "query", "action")
		s.nested(webSearch(id, adapters.String(v[0]), v[1]))
	case "ImageView":
		s.nested(viewImage(id, filePath(adapters.String(adapters.Fields(it, "path")[0]))))
	case "ImageGeneration":
		s.nested(imageGeneration(id, adapters.String(adapters.Fields(it, "revised_prompt")[0])))
	}
}
