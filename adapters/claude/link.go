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
	if !s.waiting[key] {
		s.waiting[key], s.dirty = true, true
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
		delete(s.waiting, key)
		s.c.MarkNoise(key)
		return
	}
	if in, _, ok := strings.Cut(text, "</teammate-message>"); ok && strings.HasPrefix(text, "<teammate-message") {
		_, text, _ = strings.Cut(in, ">")
	}
	if st.Prompt = promptHash(text); st.Prompt != "" {
		s.dirty = true
	}
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

// link registers every subagent whose spawning call is known and was emitted. It costs nothing while nothing changed.
func (s *session) link(now int64) {
	if len(s.waiting) == 0 || !s.dirty && (s.linkAt == 0 || now < s.linkAt) {
		return
	}
	s.dirty, s.linkAt = false, 0
	keys := make([]string, 0, len(s.waiting))
	for key := range s.waiting {
		if st := s.c.S.Streams[key]; st == nil || st.Registered || st.Noise {
			delete(s.waiting, key)
		} else {
			keys = append(keys, key)
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := s.c.S.Streams[keys[i]], s.c.S.Streams[keys[j]]
		if a.First != b.First {
			return a.First < b.First
		}
		return keys[i] < keys[j]
	})
	for _, key := range keys {
		st := s.c.S.Streams[key]
		if st.Registered {
			continue
		}
		if st.Hint != "" {
			s.linkWorkflow(key, st, now)
			continue
		}
		call := st.Target
		if call == "" {
			call = s.Agents[key]
		}
		if call == "" {
			s.linkByPrompt(st, keys, now)
		} else if sp := s.c.S.Spawns[call]; sp != nil && sp.Child == "" && sp.Stream != key {
			s.register(key, sp)
		}
	}
}

// register links a stream to its call; how it was found is not needed any more.
func (s *session) register(key string, sp *adapters.Spawn) {
	s.c.Link(key, sp)
	delete(s.Agents, key)
	delete(s.waiting, key)
}

// past says whether a wait is over. Until all files were read to their ends it is not, because what is waited for may be on disk
// and not yet met. Otherwise link is called again when its time has come.
func (s *session) past(t, now int64) bool {
	if now >= t && s.drained {
		return true
	}
	if s.linkAt == 0 || t < s.linkAt {
		s.linkAt = t
	}
	return false
}

// workflowPrefix marks the stream of a workflow's run: a subagent that says nothing itself and holds the cards of its agents.
const workflowPrefix = "workflow:"

// linkWorkflow registers an agent of a workflow's run, with a card of its own, once the run's call was emitted.
func (s *session) linkWorkflow(key string, st *adapters.Stream, now int64) {
	sp := s.c.S.Spawns[s.Runs[st.Hint]]
	if sp == nil {
		return
	}
	// Its sidecar has the card's title, and its siblings may have begun before it.
	if !s.past(st.Seen+waitMeta, now) {
		return
	}
	run := workflowPrefix + sp.Provider
	if !s.c.Stream(run).Registered {
		s.c.Link(run, sp)
	}
	s.c.LinkCard(key, run, key, card(st))
	delete(s.waiting, key)
	s.c.S.Streams[run].Terminal, s.c.S.Streams[run].At = adapters.TerminalSure, now
}

// linkByPrompt pairs calls and children with equal prompts, first with first, once it is clear that no more calls of their
// message can come and that all children are there with their sidecars (or have had time to be).
func (s *session) linkByPrompt(st *adapters.Stream, waiting []string, now int64) {
	if st.Prompt == "" {
		return
	}
	calls := s.callsFor(st.Prompt)
	if len(calls) == 0 {
		return
	}
	sidecars := s.c.S.Facts.Version != "" && !versionBefore(s.c.S.Facts.Version, 2, 1, 90)
	var kids []string
	for _, k := range waiting {
		w := s.c.S.Streams[k]
		if w.Prompt != st.Prompt || w.Registered || w.Target != "" || s.Agents[k] != "" || w.Hint != "" {
			continue
		}
		if sidecars && w.Title == "" && w.Kind == "" && !s.past(w.Seen+waitMeta, now) {
			return // its sidecar may name another call
		}
		kids = append(kids, k)
	}
	for _, sp := range calls {
		if !sp.Settled && !s.past(sp.At+settleGroup, now) {
			return
		}
	}
	if len(kids) < len(calls) && len(calls) > 1 && !s.past(calls[0].At+waitSiblings, now) {
		return
	}
	// A sidecar without the call's id still tells the call's description.
	for _, sp := range calls {
		for _, k := range kids {
			if w := s.c.S.Streams[k]; !w.Registered && sp.Child == "" && w.Title != "" && w.Title == sp.Title {
				s.register(k, sp)
			}
		}
	}
	for _, sp := range calls {
		for _, k := range kids {
			if sp.Child == "" && !s.c.S.Streams[k].Registered && sp.Stream != k {
				s.register(k, sp)
			}
		}
	}
}

// callsFor lists the calls with a prompt that no child is known to belong to, in their order.
func (s *session) callsFor(prompt string) []*adapters.Spawn {
	named := map[string]bool{}
	for _, st := range s.c.S.Streams {
		if !st.Registered && !st.Noise {
			named[st.Target] = true
		}
	}
	for _, call := range s.Agents {
		named[call] = true
	}
	var calls []*adapters.Spawn
	for _, sp := range s.c.S.Spawns {
		if sp.Prompt == prompt && sp.Child == "" && !named[sp.Provider] {
			calls = append(calls, sp)
		}
	}
	sort.Slice(calls, func(i, j int) bool {
		a, b := calls[i], calls[j]
		if a.TS != b.TS {
			return a.TS < b.TS
		}
		return a.N < b.N
	})
	return calls
}

// settle notes that no more calls of earlier messages can come in a stream: a later record of it was mapped.
func (s *session) settle(stream string, l *line) {
	group := ""
	if l.typ == "assistant" {
		group = l.msg.id
	}
	if s.c.Settle(stream, group) {
		s.dirty = true
	}
}
