package claude

import (
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// head collects from a subagent's records what links it to its parent. All of it stands in the first ones.
func (s *session) head(key, group string, l *line, now int64) {
	st := s.c.Stream(key)
	if st.Registered || st.Noise {
		return
	}
	if group != "" {
		st.Hint = group
	}
	if st.Seen == 0 {
		st.Seen = now
	}
	if st.First == 0 {
		st.First = l.ts
	}
	if st.Key == "" {
		st.Key = l.prompt
	}
	if st.Prompt != "" || l.typ != "user" || l.meta {
		return
	}
	text := l.msg.text
	if text == "" {
		text = blocksText(l.msg.blocks)
	}
	if strings.TrimSpace(text) == "Warmup" {
		s.c.MarkNoise(key)
		return
	}
	if in, _, ok := strings.Cut(text, "</teammate-message>"); ok && strings.HasPrefix(text, "<teammate-message") {
		_, text, _ = strings.Cut(in, ">")
	}
	st.Prompt = promptHash(text)
}

func blocksText(bs []block) string {
	var parts []string
	for _, b := range bs {
		if b.typ == "text" {
			parts = append(parts, b.text)
		}
	}
	return strings.Join(parts, "\n")
}

// evidence reads from any record what it says about other streams: which agent a call started, and that one ended.
func (s *session) evidence(stream string, l *line, now int64) {
	switch l.typ {
	case "user":
		for _, b := range l.msg.blocks {
			if b.typ == "tool_result" {
				s.resultEvidence(stream, l, b)
			}
		}
		if n, ok := parseNote(l.msg.text); ok {
			s.noteEnd(n)
		} else if n, ok := parseNote(blocksText(l.msg.blocks)); ok {
			s.noteEnd(n)
		}
	case "queue-operation":
		t := contentText(l.content)
		if n, ok := parseNote(t); ok && l.operation == "enqueue" {
			s.noteEnd(n)
		} else if name, ok := strings.CutPrefix(t, `Background agent "`); ok && strings.HasSuffix(name, `" was stopped by the user.`) {
			name = strings.TrimSuffix(name, `" was stopped by the user.`)
			for key, st := range s.c.S.Streams {
				if st.Title == name && st.Running {
					s.c.EndNow(key)
				}
			}
		}
	case "attachment":
		v := adapters.Fields(l.attachment, "type", "prompt")
		if adapters.String(v[0]) == "queued_command" {
			if n, ok := parseNote(contentText(v[1])); ok {
				s.noteEnd(n)
			}
		}
	case "system":
		if l.subtype == "agents_killed" {
			for _, key := range s.c.Running() {
				s.c.EndNow(key)
			}
		}
	case "progress":
		v := adapters.Fields(l.data, "type", "agentId")
		if id := adapters.String(v[1]); adapters.String(v[0]) == "agent_progress" && id != "" && l.parentToolUseID != "" {
			s.Agents[id] = l.parentToolUseID
		}
	}
}

func (s *session) resultEvidence(stream string, l *line, b block) {
	v := adapters.Fields(l.result, "runId", "resumedAgentId")
	if run := adapters.String(v[0]); run != "" {
		s.Runs[run] = b.id
	}
	if adapters.String(v[1]) != "" || b.isError {
		return // a message to an agent names it, but did not start it
	}
	if id := agentOf(l, b); id != "" && s.Agents[id] == "" {
		s.Agents[id] = b.id
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
		if !strings.HasPrefix(n.task, "a") {
			return
		}
	}
	s.c.End(n.task, n.key())
}

// Observe implements adapters.Session.
func (s *session) Observe(o adapters.Observation, now int64) {
	s.c.SetNow(now)
	switch o.Kind {
	case adapters.ObserveMeta:
		s.meta(o.Stream, o.Data)
	case adapters.ObserveProcess:
		if !o.Process.Alive && s.Proc.Alive || s.ProcAt == 0 {
			s.ProcAt = now
		}
		s.Proc = o.Process
	case adapters.ObserveEnd:
		s.finish(now)
	}
	s.link(now)
}

// meta reads an agent's .meta.json.
func (s *session) meta(key string, data []byte) {
	v := adapters.Fields(data, "toolUseId", "parentAgentId", "description", "agentType", "stoppedByUser")
	if v[0] == nil && v[2] == nil && v[3] == nil {
		return // being written, or nothing we know
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
	if adapters.Bool(v[4]) && st.Running {
		s.c.EndNow(key)
	}
}

// link registers every subagent whose spawning call is known and was emitted.
func (s *session) link(now int64) {
	var waiting []string
	for key, st := range s.c.S.Streams {
		if !st.Registered && !st.Noise && st.Seen != 0 {
			waiting = append(waiting, key)
		}
	}
	if len(waiting) == 0 {
		return
	}
	sort.Slice(waiting, func(i, j int) bool {
		a, b := s.c.S.Streams[waiting[i]], s.c.S.Streams[waiting[j]]
		if a.First != b.First {
			return a.First < b.First
		}
		return waiting[i] < waiting[j]
	})
	for _, key := range waiting {
		st := s.c.S.Streams[key]
		if st.Hint != "" {
			s.linkWorkflow(key, st, now)
			continue
		}
		call := st.Target
		if call == "" {
			call = s.Agents[key]
		}
		if call != "" {
			if sp := s.c.S.Spawns[call]; sp != nil && sp.Child == "" {
				s.c.Link(key, sp)
			}
			continue
		}
		s.linkByPrompt(st, waiting, now)
	}
}

// workflowPrefix marks the stream of a workflow's run: a subagent that says nothing itself and holds the cards of its agents.
const workflowPrefix = "workflow:"

// linkWorkflow registers an agent of a workflow's run, with a card of its own, once the run's call was emitted.
func (s *session) linkWorkflow(key string, st *adapters.Stream, now int64) {
	sp := s.c.S.Spawns[s.Runs[st.Hint]]
	if sp == nil {
		return
	}
	run := workflowPrefix + sp.Provider
	if !s.c.Stream(run).Registered {
		s.c.Link(run, sp)
	}
	s.c.LinkCard(key, run, key, card(st))
	s.c.S.Streams[run].Terminal, s.c.S.Streams[run].At = adapters.TerminalSure, now
}

// linkByPrompt pairs calls and children with equal prompts, first with first, once it is clear that no more calls of their
// message can come and that all children are there (or have had time to be).
func (s *session) linkByPrompt(st *adapters.Stream, waiting []string, now int64) {
	if st.Prompt == "" {
		return
	}
	var calls []*adapters.Spawn
	for _, sp := range s.c.S.Spawns {
		if sp.Prompt == st.Prompt && sp.Child == "" && !s.named(sp.Provider) {
			calls = append(calls, sp)
		}
	}
	if len(calls) == 0 {
		return
	}
	sort.Slice(calls, func(i, j int) bool {
		if calls[i].TS != calls[j].TS {
			return calls[i].TS < calls[j].TS
		}
		return calls[i].At < calls[j].At || calls[i].At == calls[j].At && calls[i].Provider < calls[j].Provider
	})
	var kids []string
	for _, k := range waiting {
		w := s.c.S.Streams[k]
		if w.Prompt == st.Prompt && !w.Registered && w.Target == "" && s.Agents[k] == "" && w.Hint == "" {
			kids = append(kids, k)
		}
	}
	for _, sp := range calls {
		if !sp.Settled && now < sp.At+settleGroup {
			return
		}
	}
	if len(kids) < len(calls) && len(calls) > 1 && now < calls[0].At+waitSiblings {
		return
	}
	for i := 0; i < len(kids) && i < len(calls); i++ {
		s.c.Link(kids[i], calls[i])
	}
}

// named says whether some agent is known to belong to a call.
func (s *session) named(call string) bool {
	for key, st := range s.c.S.Streams {
		if st.Target == call || s.Agents[key] == call {
			return true
		}
	}
	return false
}

// settle notes that no more calls of earlier messages can come in a stream: a later record of it was mapped.
func (s *session) settle(stream string, l *line) {
	for _, sp := range s.c.S.Spawns {
		if sp.Stream == stream && !sp.Settled && (l.typ != "assistant" || l.msg.id != sp.Group) {
			sp.Settled = true
		}
	}
}
