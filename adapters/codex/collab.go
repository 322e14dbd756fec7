package codex

import (
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
)

// collab maps an item about other agents: a spawn registers its child; the ends of all others are ends of calls.
func (s *session) collab(id string, it []byte) {
	v := adapters.Fields(it, "tool", "receiver_thread_ids", "prompt")
	tool := adapters.String(v[0])
	var receivers []string
	adapters.Elements(v[1], func(_ int, e []byte) bool {
		receivers = append(receivers, strings.ToLower(adapters.String(e)))
		return true
	})
	switch tool {
	case "spawn_agent", "spawnAgent":
		if len(receivers) > 0 {
			s.spawned(id, receivers[0], adapters.String(v[2]))
		}
		return
	case "close_agent", "closeAgent":
		for _, r := range receivers {
			s.closedBy(r)
		}
	}
	if s.th.Calls[id] {
		s.endCall(id)
	} else if !s.dropLate(s.l) {
		s.saw(id)
		s.nested(plainTool(id, tool, adapters.Encode(map[string]any{"targets": receivers, "prompt": adapters.String(v[2])})))
	}
}

// activity maps what is told of an agent: started registers it, interrupted closes it. That it completed says its own log.
func (s *session) activity(call, kind, child, agentPath string) {
	child = strings.ToLower(child)
	switch kind {
	case "started":
		s.spawned(call, child, agentPath)
	case "interrupted":
		s.closedBy(child)
	}
}

// spawned shows the call that spawned a thread, now that its id is known, and so registers the thread.
func (s *session) spawned(id, child, hint string) {
	child = strings.ToLower(child)
	if !isUUID(child) || child == s.opts.ID || s.Kids[child].Call != "" {
		return
	}
	c := s.th.Pending[id]
	nested := c == nil
	if nested && s.th.Calls[id] || s.dropLate(s.l) {
		return
	}
	t := spawnTool(id, "", adapters.Encode(map[string]string{"message": hint}))
	if c != nil {
		t = c.Tool
		delete(s.th.Pending, id)
	}
	s.saw(id)
	t.Spawn, t.SpawnAs = true, child
	s.startCall(t)
	s.Kids[child] = kid{Call: s.callID(id), At: s.Now}
	if nested {
		for _, c := range s.th.Pending {
			c.Nested = c.Nested || !c.Spawn
		}
		s.endCall(id)
	}
}

// closedBy notes that a child was closed by another agent: its own log need not say so.
func (s *session) closedBy(child string) {
	child = strings.ToLower(child)
	if isUUID(child) && child != s.opts.ID {
		s.Closed[child] = report{TS: s.l.ts, At: s.Now}
	}
}

// link registers the threads whose spawning call was shown.
func (s *session) link() {
	if len(s.Waiting) == 0 {
		return
	}
	for _, key := range s.waiting() {
		st := s.c.Stream(key)
		if p := s.c.S.Streams[st.Named]; st.Named != adapters.Main && p != nil && p.Noise {
			st.Noise = false
			delete(s.Waiting, key)
			s.c.MarkNoise(key) // a helper's helper
			continue
		}
		call := s.Kids[key].Call
		if call == "" {
			continue
		}
		if sp := s.c.S.Spawns[call]; sp != nil && sp.Child == "" {
			s.c.Link(key, sp)
			delete(s.Waiting, key)
		}
	}
}

func (s *session) waiting() []string {
	keys := make([]string, 0, len(s.Waiting))
	for k := range s.Waiting {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := s.c.Stream(keys[i]), s.c.Stream(keys[j])
		if a.First != b.First {
			return a.First < b.First
		}
		return keys[i] < keys[j]
	})
	return keys
}

// adopt registers threads whose spawning call can no longer come, with a card of our own: the process is dead, or the parent has
// finished the turn in which the thread was made. It says whether there were any.
func (s *session) adopt(dead bool) (adopted bool) {
	if !s.Main {
		return false
	}
	for _, key := range s.waiting() {
		st := s.c.Stream(key)
		parent := st.Named
		if p := s.c.S.Streams[parent]; parent != adapters.Main && (p == nil || !p.Registered) {
			if !dead || p != nil && p.Seen != 0 {
				continue // its parent comes first
			}
			parent = adapters.Main // the parent's log does not exist
		}
		if !dead && !s.pastBirth(parent, st) {
			continue
		}
		if st.Title == "" {
			st.Title = st.Kind
		}
		s.c.LinkCard(key, parent, key, map[string]any{"description": st.Title, "agent_type": st.Kind})
		if st.Registered {
			delete(s.Waiting, key)
			adopted = true
		}
	}
	return adopted
}

// pastBirth says whether a parent's log has gone past the turn in which a child was made.
func (s *session) pastBirth(parent string, st *adapters.Stream) bool {
	th := s.Threads[parent]
	return th != nil && st.First != 0 && th.End > st.First && s.c.Queued(parent) == 0
}
