package claude

import (
	"bytes"
	"encoding/hex"
	"strconv"
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
	parentToolUseID                            string
	title                                      string
	leaf                                       string
	level                                      string
	feedback                                   string // what the user wrote when they refused a tool
	cwd, branch, version, entry                string
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

// Of some types only a few kinds are read. These are most of a new log's bytes, so that they are told apart before anything else
// of the record is looked at.
var (
	knownAttachments = map[string]bool{"queued_command": true, "plan_mode": true, "plan_mode_exit": true, "hook_blocking_error": true}
	knownProgress    = map[string]bool{"agent_progress": true}
	knownSystem      = map[string]bool{
		"turn_duration": true, "stop_hook_summary": true, "api_error": true, "compact_boundary": true, "local_command": true,
		"informational": true, "agents_killed": true,
	}
)

// parse looks at a record's top level. It returns nil for what is not mapped, with the type to count.
func parse(rec watch.Record) (*line, string) {
	l := &line{}
	skip := ""
	peek := func(key, rest []byte) bool {
		if string(key) == "attachment" {
			skip = unreadStart(rest)
		}
		return skip == ""
	}
	adapters.WalkObject(rec.Data, peek, func(key, raw []byte) bool {
		switch string(key) {
		case "type":
			l.typ = adapters.String(raw)
			if !known[l.typ] {
				skip = l.typ
			}
		case "attachment":
			l.attachment = raw
			skip = unread("attachment ", knownAttachments, raw)
		case "data":
			l.data = raw
			if l.typ == "" || l.typ == "progress" {
				skip = unread("progress ", knownProgress, raw)
			}
		default:
			l.set(string(key), raw)
		}
		return skip == ""
	})
	l.raw = rec.Data
	switch {
	case skip != "":
		return nil, skip
	case rec.Oversize:
		return parseHuge(rec, l)
	case l.typ == "":
		return nil, "no type"
	case l.typ == "system" && !knownSystem[l.subtype]:
		return nil, "system " + l.subtype
	case l.typ == "attachment" && l.attachment == nil, l.typ == "progress" && l.data == nil:
		return nil, l.typ
	case l.typ == "user" || l.typ == "assistant":
		l.msg = parseMessage(l.message)
	}
	return l, ""
}

// unreadStart is unread for an attachment that begins with its type, as all do that the client writes.
func unreadStart(rest []byte) string {
	const start = `{"type":"`
	if !bytes.HasPrefix(rest, []byte(start)) {
		return ""
	}
	rest = rest[len(start):]
	end := bytes.IndexByte(rest[:min(len(rest), 64)], '"')
	if end < 0 || bytes.IndexByte(rest[:end], '\\') >= 0 || knownAttachments[string(rest[:end])] {
		return ""
	}
	return "attachment " + string(rest[:end])
}

// unread names a nested object whose type is not read, "" for one that is.
func unread(prefix string, read map[string]bool, raw []byte) string {
	typ := ""
	adapters.ScanObject(raw, func(key, v []byte) bool {
		if string(key) == "type" {
			typ = adapters.String(v)
			return false
		}
		return true
	})
	if read[typ] {
		return ""
	}
	return prefix + typ
}

// set takes one key of the record's top level.
func (l *line) set(key string, raw []byte) {
	str := func(dst *string) { *dst = adapters.String(raw) }
	switch key {
	case "subtype":
		str(&l.subtype)
	case "uuid":
		str(&l.uuid)
	case "parentUuid":
		l.parent, l.root = adapters.String(raw), string(raw) == "null"
	case "agentId":
		str(&l.agent)
	case "promptId":
		str(&l.prompt)
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
	case "origin":
		l.origin = adapters.String(adapters.Fields(raw, "kind")[0])
	case "promptSource":
		str(&l.source)
	case "operation":
		str(&l.operation)
	case "reason":
		str(&l.reason)
	case "parentToolUseID":
		str(&l.parentToolUseID)
	case "customTitle", "aiTitle", "summary":
		str(&l.title)
	case "leafUuid":
		str(&l.leaf)
	case "level":
		str(&l.level)
	case "userFeedback":
		str(&l.feedback)
	case "cwd":
		str(&l.cwd)
	case "gitBranch":
		str(&l.branch)
	case "version":
		str(&l.version)
	case "entrypoint":
		str(&l.entry)
	}
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
		id += "-" + strconv.Itoa(nth)
	}
	return id
}
