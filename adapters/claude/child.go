package claude

import (
	"strings"

	"github.com/happyd/happyd/adapters"
)

// mapChild maps one record of a registered subagent. Its prompt stands on its parent's card and is not shown again.
func (s *session) mapChild(key string, l *line) {
	st := s.c.S.Streams[key]
	switch l.typ {
	case "user":
		s.mapChildUser(key, st, l)
	case "assistant":
		if l.msg.model == synthetic && !l.apiError {
			return
		}
		// A run that was over goes on with a new message: that is a new run, whoever has read what by now.
		if st.Running && st.Terminal == adapters.TerminalSure && l.msg.id != st.Msg {
			s.stop(key)
		}
		s.mapChildAssistant(key, st, l)
	}
	st.At = s.c.Now()
	st.TS = max(st.TS, l.ts)
}

func (s *session) mapChildAssistant(key string, st *adapters.Stream, l *line) {
	st.Msg = l.msg.id
	if l.apiError {
		s.c.Service(key, 0, errorText(l))
		st.Terminal = adapters.TerminalSure
		return
	}
	text, tool := s.output(key, l)
	switch {
	case tool:
		st.Terminal = 0
	case final[l.msg.stop] && text:
		st.Terminal = adapters.TerminalSure
	case l.msg.stop == "" && text && s.c.OpenCalls(key) == 0:
		st.Terminal = adapters.TerminalWeak
	case text:
		st.Terminal = 0
	}
}

func (s *session) mapChildUser(key string, st *adapters.Stream, l *line) {
	results, stopped := false, isInterrupt(l.msg.text)
	for _, b := range l.msg.blocks {
		switch b.typ {
		case "tool_result":
			results = true
			if b.id != st.Target {
				s.result(key, l, b)
			}
		case "text":
			stopped = stopped || isInterrupt(b.text)
		}
	}
	woken := l.origin == "coordinator"
	switch {
	case stopped || results && s.deniedByInterrupt(l):
		if st.Running {
			st.Terminal = adapters.TerminalSure
		}
	case results:
		st.Terminal = 0
	case l.meta && !woken:
		st.Terminal = 0 // the harness sends the model on, in the same run
	case st.Output && (woken || st.Terminal != 0 || !st.Running):
		// Its parent woke it again. What a running agent is told in between starts no new run.
		if st.Running && st.Terminal == adapters.TerminalSure {
			s.stop(key)
		}
		st.Terminal = 0
		st.Resumes++
	}
}

// admitResults holds a parent's record with the result of a foreground child until the child's own end was read, at most
// holdChild: the child's last lines are often written after the result. What was read of the child and waits itself, for its own
// children, is waited for longer.
func (s *session) admitResults(stream string, l *line, now int64) bool {
	if l.typ != "user" {
		return true
	}
	for _, b := range l.msg.blocks {
		if b.typ != "tool_result" {
			continue
		}
		sp := s.c.S.Spawns[b.id]
		if sp == nil || sp.Stream != stream || launched(l, b) {
			continue
		}
		s.settle(stream, l)
		s.link(now)
		if sp.Child == "" {
			if agentOf(l, b) == "" && !diedEarly(b) {
				continue // it never started, or nothing names it
			}
		} else {
			s.c.End(sp.Child, "result:"+sp.Call)
			// As many runs must have been read as ends were reported.
			if st := s.c.S.Streams[sp.Child]; st != nil && st.Runs > st.Resumes && !st.Running && len(st.Ends) <= st.Resumes+1 {
				continue
			}
		}
		if sp.Hold == 0 {
			sp.Hold = now
		}
		if now < s.holdEnd(sp) || !s.drained {
			return false
		}
	}
	return true
}

// holdEnd is until when a parent's record waits for the end of its child. What was read of the child and waits itself, for
// its own children, is waited for longer.
func (s *session) holdEnd(sp *adapters.Spawn) int64 {
	end := sp.Hold + holdChild
	if sp.Child != "" && s.c.Queued(sp.Child) > 0 {
		end += holdDeep
	}
	return end
}

// diedEarly says whether an error result is that of a child that did run. A call that could not start one has no child to wait for.
func diedEarly(b block) bool {
	return b.isError && strings.HasPrefix(strings.TrimSpace(contentText(b.content)), "Agent terminated")
}

// launched says whether a result only reports the start of a child that goes on by itself.
func launched(l *line, b block) bool {
	v := adapters.Fields(l.result, "status", "isAsync")
	switch adapters.String(v[0]) {
	case "async_launched", "teammate_spawned", "remote_launched":
		return true
	}
	if adapters.Bool(v[1]) {
		return true
	}
	// Inside agents' files there is often no toolUseResult; the text tells.
	return l.result == nil && strings.HasPrefix(strings.TrimSpace(contentText(b.content)), "Async agent launched")
}

// agentOf finds the child's id in the result of a spawning call.
func agentOf(l *line, b block) string {
	if id := adapters.String(adapters.Fields(l.result, "agentId")[0]); id != "" || len(l.result) > 0 && l.result[0] == '{' {
		return id // other tools' output may quote what the text below looks for
	}
	t := contentText(b.content)
	i := strings.LastIndex(t, "agentId: ")
	if i < 0 {
		return ""
	}
	id := t[i+len("agentId: "):]
	end := strings.IndexFunc(id, func(r rune) bool {
		return !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
	if end >= 0 {
		id = id[:end]
	}
	return id
}
