package codex

import (
	"strconv"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// How a rollout is laid out.
const (
	modeBare      = "bare"      // up to 0.29: response items without an envelope
	modeLegacy    = "legacy"    // 0.34 on: event_msg beside response_item
	modePaginated = "paginated" // 0.148 on: finished items, every record with an ordinal
)

// meta is what the first record of a rollout says.
type meta struct {
	id, session, parent, forked string
	cwd, version, originator    string
	source, branch, mode        string
	agentPath, nickname, role   string
	ts                          int64 // creation of the thread, Unix ms
	depth                       int64
	start                       int64 // subagent_history_start_ordinal, -1 = not given
	base                        bool  // continues another file's history instead of copying it
	noise                       bool  // a helper of Codex itself: review, compaction, guardian, memory…
}

// parseMeta reads a session_meta record, or what stood in its place before 0.34.
func parseMeta(rec watch.Record) (meta, bool) {
	l, _ := parse(rec)
	if l == nil || l.kind != kindMeta {
		return meta{}, false
	}
	m := l.meta()
	return m, m.id != ""
}

func (l *line) meta() meta {
	v := adapters.Fields(l.p, "id", "session_id", "parent_thread_id", "forked_from_id", "cwd", "cli_version", "originator", "source",
		"git", "history_mode", "agent_path", "agent_nickname", "agent_role", "timestamp", "subagent_history_start_ordinal", "history_base", "thread_source")
	str := func(i int) string { return adapters.String(v[i]) }
	m := meta{
		id: strings.ToLower(str(0)), session: strings.ToLower(str(1)), parent: strings.ToLower(str(2)), forked: str(3), cwd: str(4),
		version: str(5), originator: str(6), branch: adapters.String(adapters.Fields(v[8], "branch")[0]),
		mode: modeLegacy, agentPath: str(10), nickname: str(11), role: str(12), ts: parseTime(str(13)), start: -1, base: v[15] != nil,
	}
	switch {
	case l.bare:
		m.mode = modeBare
	case str(9) == modePaginated:
		m.mode = modePaginated
	}
	if v[14] != nil {
		m.start = adapters.Int(v[14])
	}
	m.readSource(v[7], str(16))
	return m
}

// readSource tells a spawned agent from the user's own thread and from Codex' helpers.
func (m *meta) readSource(raw []byte, threadSource string) {
	if len(raw) == 0 || raw[0] != '{' {
		m.source = adapters.String(raw)
		return
	}
	v := adapters.Fields(raw, "subagent", "internal")
	spawn := adapters.Fields(v[0], "thread_spawn")[0]
	switch {
	case spawn != nil:
		s := adapters.Fields(spawn, "parent_thread_id", "depth", "agent_path", "agent_nickname", "agent_role")
		set := func(dst *string, raw []byte) {
			if t := adapters.String(raw); t != "" && *dst == "" {
				*dst = t
			}
		}
		set(&m.parent, s[0])
		m.parent = strings.ToLower(m.parent)
		m.depth = adapters.Int(s[1])
		set(&m.agentPath, s[2])
		set(&m.nickname, s[3])
		set(&m.role, s[4])
		m.source = "subagent"
	case v[0] != nil || v[1] != nil || (threadSource != "" && threadSource != "user"):
		m.noise, m.source = true, "helper"
	default:
		m.source = "custom"
	}
}

// title names an agent as its spawner called it, else as Codex did.
func (m meta) title() string {
	if i := strings.LastIndexByte(m.agentPath, '/'); i >= 0 && m.agentPath[i+1:] != "" {
		return m.agentPath[i+1:]
	}
	return m.agentPath
}

// happyDriven recognises Happy's own client, which reports its threads itself.
func happyDriven(originator string) bool {
	switch strings.ToLower(originator) {
	case "happy", "happy-codex", "happy_codex":
		return true
	}
	return false
}

// bornAt is the time in a UUIDv7, Unix ms; 0 for other UUIDs.
func bornAt(uuid string) int64 {
	if !isUUID(uuid) || uuid[14] != '7' {
		return 0
	}
	n, err := strconv.ParseInt(uuid[:8]+uuid[9:13], 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// versionBefore compares a 0.x version; an unknown one is not before anything.
func versionBefore(v string, minor int) bool {
	p := strings.SplitN(v, ".", 3)
	if len(p) < 2 || p[0] != "0" {
		return false
	}
	n, err := strconv.Atoi(p[1])
	return err == nil && n < minor
}
