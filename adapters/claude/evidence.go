package claude

import (
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// evidence reads from any record what it says about other streams: which agent a call started, and that one ended. It is taken
// when a record arrives, before it may be mapped, because what it says may be what the record itself waits for.
func (s *session) evidence(stream string, l *line) {
	switch l.typ {
	case "user":
		for _, b := range l.msg.blocks {
			if b.typ == "tool_result" {
				s.resultEvidence(l, b)
			}
		}
		s.textEvidence(l, l.msg.text)
		for _, b := range l.msg.blocks {
			if b.typ == "text" {
				s.textEvidence(l, b.text)
			}
		}
	case "queue-operation":
		if l.operation == "enqueue" {
			s.textEvidence(l, contentText(l.content))
		}
	case "attachment":
		v := adapters.Fields(l.attachment, "type", "prompt")
		if adapters.String(v[0]) == "queued_command" {
			s.textEvidence(l, contentText(v[1]))
		}
	case "progress":
		v := adapters.Fields(l.data, "type", "agentId")
		if id := adapters.String(v[1]); adapters.String(v[0]) == "agent_progress" && id != "" && l.parentToolUseID != "" {
			s.name(s.Agents, id, l.parentToolUseID)
		}
	}
}

// textEvidence takes what the harness says about agents in a text.
func (s *session) textEvidence(l *line, text string) {
	for _, n := range parseNotes(text, l.origin) {
		s.noteEnd(n)
	}
	if mate, at, ok := idleNote(text); ok && s.Mates[mate] != "" {
		s.c.End(s.Mates[mate], "idle:"+at)
	}
}

func (s *session) resultEvidence(l *line, b block) {
	v := adapters.Fields(l.result, "runId", "resumedAgentId", "status", "name", "teammate_id")
	if run := adapters.String(v[0]); run != "" {
		s.name(s.Runs, run, b.id)
	}
	if adapters.String(v[1]) != "" || b.isError {
		return // a message to an agent names it, but did not start it
	}
	id := agentOf(l, b)
	if id == "" {
		return
	}
	if adapters.String(v[2]) == "teammate_spawned" {
		mate := adapters.String(v[3])
		if mate == "" {
			mate, _, _ = strings.Cut(adapters.String(v[4]), "@")
		}
		s.name(s.Mates, mate, id)
	}
	if st := s.c.S.Streams[id]; s.Agents[id] == "" && (st == nil || !st.Registered) {
		s.name(s.Agents, id, b.id)
	}
}

// name remembers a name, within bounds. Of too many the first ones in the alphabet go, so that a restart changes nothing.
func (s *session) name(m map[string]string, key, value string) {
	if key == "" || m[key] == value {
		return
	}
	m[key] = value
	s.dirty = true
	if len(m) <= maxNames {
		return
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		if k != key {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys[:maxNames/4] {
		delete(m, k)
	}
}

// noteEnd takes a task notification as the end of the agent's run. Running shells have their own task ids, which no agent has.
func (s *session) noteEnd(n note) {
	if n.task == "" {
		return
	}
	for _, call := range s.Runs {
		if call == n.call {
			s.c.End(workflowPrefix+call, n.key())
			return
		}
	}
	if st := s.c.S.Streams[n.task]; st == nil || st.Noise {
		// The notification may be read before the agent's file; other tasks (shells, workflows) never have one.
		if !strings.HasPrefix(n.task, "a") || s.c.Forgotten(n.task) {
			return
		}
	}
	s.c.End(n.task, n.key())
}

// kill ends the agents that run in the background when the user stops them: all, or those of a title. What they were started for
// is known to their calls, whether or not anything of them was read yet.
func (s *session) kill(l *line, title string) {
	for _, sp := range s.c.S.Spawns {
		if title != "" && sp.Title != title {
			continue
		}
		sp.Killed = max(sp.Killed, l.ts)
		if st := s.c.S.Streams[sp.Child]; sp.Child != "" && st != nil {
			st.Killed = max(st.Killed, l.ts)
		}
	}
}

// over notes that a call's child ended with the call.
func (s *session) over(sp *adapters.Spawn) {
	sp.Over = true
	if sp.Child != "" {
		s.c.End(sp.Child, "result:"+sp.Call)
	}
}

// childOf is the subagent that an agent id means, for a call that wakes it again.
func (s *session) childOf(id string) (subagent string, ok bool) {
	st := s.c.S.Streams[id]
	if st != nil && st.Registered {
		return st.Subagent, true
	}
	call := s.Agents[id]
	if st != nil && st.Target != "" {
		call = st.Target
	}
	if sp := s.c.S.Spawns[call]; sp != nil {
		return sp.Subagent, true
	}
	return "", false
}

// Observe implements adapters.Session.
func (s *session) Observe(o adapters.Observation, now int64) {
	s.c.SetNow(now)
	switch o.Kind {
	case adapters.ObserveMeta:
		s.meta(o.Stream, o.Data)
	case adapters.ObserveProcess:
		if s.ProcAt == 0 || !o.Process.Alive && s.Proc.Alive {
			s.ProcAt = now
		}
		if was := s.Proc.PID; was != 0 && o.Process.PID != 0 && was != o.Process.PID {
			s.Died = s.c.S.Turn != nil // another process goes on with the session: the first one left its turn in the middle
		}
		s.Proc = o.Process
	case adapters.ObserveEnd:
		s.finish()
	}
	s.link(now)
}

// meta reads an agent's .meta.json. It is written again at the start and the end of each run.
func (s *session) meta(key string, data []byte) {
	v := adapters.Fields(data, "toolUseId", "parentAgentId", "description", "agentType", "finished", "stoppedByUser", "spawnDepth")
	if v[0] == nil && v[2] == nil && v[3] == nil {
		return // being written, or nothing we know
	}
	if s.c.Forgotten(key) {
		return
	}
	st := s.c.Stream(key)
	set := func(dst *string, raw []byte) {
		if t := adapters.String(raw); t != "" && *dst == "" {
			*dst = t
		}
	}
	set(&st.Target, v[0])
	set(&st.Named, v[1])
	set(&st.Title, v[2])
	set(&st.Kind, v[3])
	st.Depth = int(max(0, min(adapters.Int(v[6]), 100)))
	switch {
	case adapters.Bool(v[5]):
		st.Told = adapters.ToldStopped
	case adapters.Bool(v[4]):
		st.Told = adapters.ToldFinished
	default:
		st.Told = ""
	}
	s.dirty = true
}
