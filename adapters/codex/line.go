package codex

import (
	"bytes"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// Kinds of records that are read.
const (
	kindMeta     = "session_meta"
	kindContext  = "turn_context"
	kindCompact  = "compacted"
	kindResponse = "response_item"
	kindEvent    = "event_msg"
)

// tooLong stands for a text that was not read whole.
const tooLong = "[a message too long to show]"

// line is one record as far as it is looked at; what is raw stays undecoded until a mapping needs it.
type line struct {
	kind, sub string // type of the record and of its payload
	item      string // type of an item_completed's item
	ts        int64  // Unix ms, 0 = none
	ord       int64  // ordinal, -1 = none
	p         []byte // payload
	it        []byte // the item
	tail      []byte // end of an oversize record
	bare      bool   // written before 0.34
	huge      bool   // oversize: p and it are cut off
}

var subs = map[string]map[string]bool{
	kindResponse: {
		"message": true, "reasoning": true, "function_call": true, "function_call_output": true, "custom_tool_call": true,
		"custom_tool_call_output": true, "local_shell_call": true, "local_shell_call_output": true, "web_search_call": true, "image_generation_call": true,
	},
	kindEvent: {
		"user_message": true, "agent_message": true, "agent_reasoning": true, "task_started": true, "turn_started": true,
		"task_complete": true, "turn_complete": true, "turn_aborted": true, "item_completed": true, "token_count": true, "error": true,
		"exec_command_end": true, "patch_apply_end": true, "mcp_tool_call_end": true, "view_image_tool_call": true, "dynamic_tool_call_response": true,
		"sub_agent_activity": true, "collab_agent_spawn_end": true, "collab_close_end": true, "collab_agent_close_end": true,
		"entered_review_mode": true, "exited_review_mode": true, "context_compacted": true, "thread_rolled_back": true, "thread_name_updated": true,
	},
}

var items = map[string]bool{
	"UserMessage": true, "AgentMessage": true, "Reasoning": true, "Plan": true, "CommandExecution": true, "FileChange": true,
	"McpToolCall": true, "DynamicToolCall": true, "WebSearch": true, "ImageView": true, "ImageGeneration": true, "CollabAgentToolCall": true,
	"SubAgentActivity": true, "EnteredReviewMode": true, "ExitedReviewMode": true, "ContextCompaction": true,
}

// parse looks at a record. It returns nil for what is not mapped, with the type to count.
func parse(rec watch.Record) (*line, string) {
	l := &line{ord: -1, huge: rec.Oversize, tail: rec.Tail}
	var id, state bool
	adapters.ScanObject(rec.Data, func(key, raw []byte) bool {
		switch string(key) {
		case "type":
			l.kind = adapters.String(raw)
		case "timestamp":
			l.ts = parseTime(adapters.String(raw))
		case "ordinal":
			if raw[0] >= '0' && raw[0] <= '9' {
				l.ord = adapters.Int(raw)
			}
		case "payload":
			l.p = raw
		case "id":
			id = true
		case "record_type":
			state = true
		}
		return true
	})
	if l.huge && l.p == nil {
		l.p = fragment(rec.Data, "payload")
	}
	if l.p == nil {
		return parseBare(l, rec, id, state)
	}
	switch l.kind {
	case kindMeta, kindContext, kindCompact:
		return l, ""
	case kindResponse, kindEvent:
	case "":
		return nil, "no type"
	default:
		return nil, l.kind
	}
	if l.sub = typeOf(l.p); !subs[l.kind][l.sub] {
		return nil, l.kind + " " + l.sub
	}
	if l.sub == "item_completed" {
		if l.it = adapters.Fields(l.p, "item")[0]; l.it == nil && l.huge {
			l.it = fragment(l.p, "item")
		}
		if l.item = typeOf(l.it); !items[l.item] {
			return nil, "item " + l.item
		}
	}
	return l, ""
}

// parseBare reads a record of the first layout: the payload without anything around it.
func parseBare(l *line, rec watch.Record, id, state bool) (*line, string) {
	l.bare, l.p = true, rec.Data
	switch {
	case state:
		return nil, "state"
	case l.kind == "" && id && l.ts != 0:
		l.kind = kindMeta
		return l, ""
	case l.kind == "":
		return nil, "no type"
	case !subs[kindResponse][l.kind]:
		return nil, l.kind
	}
	l.kind, l.sub = kindResponse, l.kind
	return l, ""
}

// typeOf returns an object's "type", which stands first in practice.
func typeOf(obj []byte) (t string) {
	adapters.ScanObject(obj, func(key, raw []byte) bool {
		if string(key) == "type" {
			t = adapters.String(raw)
			return false
		}
		return true
	})
	return t
}

// fragment returns what stands behind the first "key": of a record that was cut off.
func fragment(data []byte, key string) []byte {
	i := bytes.Index(data, []byte(`"`+key+`"`))
	if i < 0 {
		return nil
	}
	data = bytes.TrimLeft(data[i+len(key)+2:], " \t:")
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	return data
}

// tailString finds the last "key":"value" in the end of an oversize record.
func (l *line) tailString(key string) string {
	i := bytes.LastIndex(l.tail, []byte(`"`+key+`"`))
	if i < 0 {
		return ""
	}
	rest := bytes.TrimLeft(l.tail[i+len(key)+2:], " \t:")
	if len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	if end := bytes.IndexByte(rest[1:], '"'); end >= 0 {
		return adapters.String(rest[:end+2])
	}
	return ""
}

// str reads a string of the payload.
func (l *line) str(key string) string { return adapters.String(adapters.Fields(l.p, key)[0]) }

// text reads a string that is shown; of a record that was too long it says so.
func (l *line) text(obj []byte, key string) string {
	if raw := adapters.Fields(obj, key)[0]; raw != nil || !l.huge {
		return adapters.String(raw)
	}
	return tooLong
}

// callID is the id of a call or of its output.
func (l *line) callID() string {
	if id := l.str("call_id"); id != "" || !l.huge {
		return id
	}
	return l.tailString("call_id")
}

// turnID is the turn that the record says it belongs to.
func (l *line) turnID() string {
	if id := l.str("turn_id"); id != "" || l.kind != kindResponse {
		return id
	}
	return adapters.String(adapters.Fields(adapters.Fields(l.p, "internal_chat_message_metadata_passthrough")[0], "turn_id")[0])
}

func parseTime(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 2000 || t.Year() > 9999 {
		return 0
	}
	return t.UnixMilli()
}
