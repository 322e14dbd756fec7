package claude

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// line is one record as far as it is looked at. Raw parts stay undecoded until a mapping needs them.
type line struct {
	typ, subtype, uuid, parent, agent, prompt  string
	ts                                         int64
	sidechain, meta, apiError, aborted, hidden bool
	root                                       bool // parentUuid is null
	message                                    []byte
	result                                     []byte // toolUseResult
	content                                    []byte // of queue operations and system records
	attachment                                 []byte
	data                                       []byte // of progress records
	origin, source                             string
	operation, reason                          string
	toolUseID, parentToolUseID                 string
	title                                      string
	leaf                                       string
	level                                      string
	raw                                        []byte

	msg message // decoded message of user and assistant records
}

// message is the API message of a user or assistant record.
type message struct {
	id, model, stop string
	text            string // when content is a string
	blocks          []block
	usage           []byte
}

// block is one content block.
type block struct {
	typ, id, name, text string // text of text and thinking blocks; id of tool uses and results
	input, content      []byte
	isError             bool
}

// known are the record types that are read at all; all others are counted by their type and left.
var known = map[string]bool{
	"user": true, "assistant": true, "system": true, "attachment": true, "progress": true, "queue-operation": true,
	"summary": true, "custom-title": true, "ai-title": true, "pr-link": true,
}

// parse looks at a record's top level. It returns nil for types that are not mapped, with the type to count.
func parse(rec watch.Record) (*line, string) {
	l := &line{}
	adapters.ScanObject(rec.Data, func(key, raw []byte) bool {
		switch string(key) {
		case "type":
			l.typ = adapters.String(raw)
			// Nothing else matters of a foreign type, but its other keys may still come before a second "type".
		case "subtype":
			l.subtype = adapters.String(raw)
		case "uuid":
			l.uuid = adapters.String(raw)
		case "parentUuid":
			l.parent, l.root = adapters.String(raw), string(raw) == "null"
		case "agentId":
			l.agent = adapters.String(raw)
		case "promptId":
			l.prompt = adapters.String(raw)
		case "timestamp":
			l.ts = parseTime(adapters.String(raw))
		case "isSidechain":
			l.sidechain = adapters.Bool(raw)
		case "isMeta":
			l.meta = adapters.Bool(raw)
		case "isApiErrorMessage":
			l.apiError = adapters.Bool(raw)
		case "isAbortedMidStream":
			l.aborted = adapters.Bool(raw)
		case "isCompactSummary", "isVisibleInTranscriptOnly":
			l.hidden = l.hidden || adapters.Bool(raw)
		case "message":
			l.message = raw
		case "toolUseResult":
			l.result = raw
		case "content":
			l.content = raw
		case "attachment":
			l.attachment = raw
		case "data":
			l.data = raw
		case "origin":
			l.origin = adapters.String(adapters.Fields(raw, "kind")[0])
		case "promptSource":
			l.source = adapters.String(raw)
		case "operation":
			l.operation = adapters.String(raw)
		case "reason":
			l.reason = adapters.String(raw)
		case "toolUseID":
			l.toolUseID = adapters.String(raw)
		case "parentToolUseID":
			l.parentToolUseID = adapters.String(raw)
		case "customTitle", "aiTitle", "summary":
			l.title = adapters.String(raw)
		case "leafUuid":
			l.leaf = adapters.String(raw)
		case "level":
			l.level = adapters.String(raw)
		}
		return true
	})
	if !known[l.typ] {
		if l.typ == "" {
			return nil, "no type"
		}
		return nil, l.typ
	}
	l.raw = rec.Data
	if rec.Oversize {
		return parseHuge(rec, l)
	}
	if l.typ == "user" || l.typ == "assistant" {
		l.msg = parseMessage(l.message)
	}
	return l, ""
}

func parseTime(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 2000 {
		return 0
	}
	return t.UnixMilli()
}

func parseMessage(raw []byte) message {
	var m message
	adapters.ScanObject(raw, func(key, v []byte) bool {
		switch string(key) {
		case "id":
			m.id = adapters.String(v)
		case "model":
			m.model = adapters.String(v)
		case "stop_reason":
			m.stop = adapters.String(v)
		case "usage":
			m.usage = v
		case "content":
			m.text, m.blocks = "", nil
			if len(v) > 0 && v[0] == '"' {
				m.text = adapters.String(v)
			} else {
				m.blocks = parseBlocks(v)
			}
		}
		return true
	})
	return m
}

func parseBlocks(raw []byte) []block {
	var out []block
	adapters.Elements(raw, func(_ int, v []byte) bool {
		b := block{}
		if len(v) > 0 && v[0] == '"' {
			b.typ, b.text = "text", adapters.String(v)
		}
		adapters.ScanObject(v, func(key, v []byte) bool {
			switch string(key) {
			case "type":
				b.typ = adapters.String(v)
			case "id", "tool_use_id":
				b.id = adapters.String(v)
			case "name":
				b.name = adapters.String(v)
			case "text", "thinking":
				b.text = adapters.String(v)
			case "input":
				b.input = v
			case "content":
				b.content = v
			case "is_error":
				b.isError = adapters.Bool(v)
			}
			return true
		})
		out = append(out, b)
		return true
	})
	return out
}

// identity is what a record's ids derive from: its uuid, else its content and which occurrence of it this is in the file.
func identity(l *line, rec watch.Record, nth int) string {
	if l.uuid != "" {
		return l.uuid
	}
	id := "line-" + hex.EncodeToString(rec.Sum[:])
	if nth > 0 {
		id += "-" + itoa(nth)
	}
	return id
}

// parseHuge salvages what matters of a record that was too long to be read whole: of its head the type and the calls that it
// answers, of its tail the identity. Its text stays on the machine.
func parseHuge(rec watch.Record, l *line) (*line, string) {
	head, tail := string(rec.Data), string(rec.Tail)
	pick := func(s, key string) string {
		i := strings.LastIndex(s, `"`+key+`"`)
		if i < 0 {
			return ""
		}
		rest := strings.TrimLeft(s[i+len(key)+2:], " \t:")
		if !strings.HasPrefix(rest, `"`) {
			return ""
		}
		if end := strings.IndexByte(rest[1:], '"'); end >= 0 {
			return rest[1 : 1+end]
		}
		return ""
	}
	if l.uuid == "" {
		l.uuid = pick(tail, "uuid")
	}
	if l.ts == 0 {
		l.ts = parseTime(pick(tail, "timestamp"))
	}
	if l.agent == "" {
		l.agent = pick(tail, "agentId")
	}
	if l.typ != "user" {
		return nil, "oversize " + l.typ
	}
	for rest := head; ; {
		i := strings.Index(rest, `"tool_use_id"`)
		if i < 0 {
			break
		}
		rest = rest[i:]
		if id := pick(rest[:min(len(rest), 300)], "tool_use_id"); id != "" {
			l.msg.blocks = append(l.msg.blocks, block{typ: "tool_result", id: id})
		}
		rest = rest[len(`"tool_use_id"`):]
	}
	if len(l.msg.blocks) == 0 {
		l.msg.text = "[a message too long to show]"
	}
	return l, ""
}

func itoa(n int) string {
	if n == 0 {
		return "0"
	}
	var b [20]byte
	i := len(b)
	for ; n > 0; n /= 10 {
		i--
		b[i] = byte('0' + n%10)
	}
	return string(b[i:])
}
