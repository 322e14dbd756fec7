package claude

import (
	"strings"

	"github.com/happyd/happyd/watch"
)

// tooLong stands for a text that was not read whole.
const tooLong = "[a message too long to show]"

// parseHuge salvages what matters of a record that was too long to be read whole: from its ends its type and identity, from its
// head the calls that it makes or answers. Its text and its calls' input stay on the machine.
func parseHuge(rec watch.Record, l *line) (*line, string) {
	head, tail := string(rec.Data), string(rec.Tail)
	fill := func(dst *string, key string) {
		if *dst == "" {
			*dst = lastString(tail, key)
		}
	}
	fill(&l.typ, "type")
	fill(&l.uuid, "uuid")
	fill(&l.agent, "agentId")
	fill(&l.parent, "parentUuid")
	fill(&l.prompt, "promptId")
	fill(&l.cwd, "cwd")
	fill(&l.version, "version")
	if l.ts == 0 {
		l.ts = parseTime(lastString(tail, "timestamp"))
	}
	l.meta = l.meta || strings.Contains(tail, `"isMeta":true`)
	l.hidden = l.hidden || strings.Contains(tail, `"isCompactSummary":true`)
	switch l.typ {
	case "user":
		for _, id := range headStrings(head, "tool_use_id") {
			l.msg.blocks = append(l.msg.blocks, block{typ: "tool_result", id: id})
		}
		if len(l.msg.blocks) == 0 {
			l.msg.text = tooLong
		}
	case "assistant":
		if ids := headStrings(head, "id"); len(ids) > 0 && strings.HasPrefix(ids[0], "msg_") {
			l.msg.id = ids[0]
		}
		// A tool's input is the only part of an answer that gets this long; its name and id stand before it.
		if i := strings.Index(head, `"tool_use"`); i >= 0 {
			ids, names := headStrings(head[i:], "id"), headStrings(head[i:], "name")
			if len(ids) > 0 && len(names) > 0 {
				l.msg.blocks = []block{{typ: "tool_use", id: ids[0], name: names[0]}}
				return l, ""
			}
		}
		l.msg.text = tooLong
	default:
		return nil, "oversize " + l.typ
	}
	return l, ""
}

// stringAfter reads the JSON string that follows a key at the start of s, "" when something else does.
func stringAfter(s string) string {
	s = strings.TrimLeft(s, " \t:")
	if !strings.HasPrefix(s, `"`) {
		return ""
	}
	s = s[1:min(len(s), 300)]
	end := strings.IndexByte(s, '"')
	if end < 0 || strings.IndexByte(s[:end], '\\') >= 0 {
		return ""
	}
	return s[:end]
}

// lastString is the value of a key's last occurrence.
func lastString(s, key string) string {
	i := strings.LastIndex(s, `"`+key+`"`)
	if i < 0 {
		return ""
	}
	return stringAfter(s[i+len(key)+2:])
}

// headStrings lists the values of all occurrences of a key.
func headStrings(s, key string) []string {
	var out []string
	for quoted := `"` + key + `"`; ; {
		i := strings.Index(s, quoted)
		if i < 0 {
			return out
		}
		s = s[i+len(quoted):]
		if v := stringAfter(s); v != "" {
			out = append(out, v)
		}
	}
}
