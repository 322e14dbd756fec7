package codex

import (
	"strings"

	"github.com/happyd/happyd/adapters"
)

// Arrive implements adapters.Session: what links a thread to its parent, and which layer its file shows.
func (s *session) Arrive(it adapters.Item, now int64) {
	l := it.Value.(*line)
	s.Now, s.drained, s.asks = now, false, 0
	s.c.SetNow(now)
	th := s.threadOf(it.Place.Stream)
	th.Arrived = max(th.Arrived, l.ts)
	if it.Stream != it.Place.Stream {
		if _, known := s.Parts[it.Stream]; !known {
			s.Parts[it.Stream] = false
		}
	}
	if it.Place.Stream == adapters.Main {
		s.Main = true
	} else {
		s.seen(it.Place.Stream, it.Place.Group, now)
	}
	f := s.file(key(it.Place, it.Rec))
	f.rewritten(l)
	switch {
	case l.kind == kindMeta:
		s.head(it, f, l.meta())
	case s.c.S.Facts.Cwd == "" && it.Place.Stream == adapters.Main && l.kind == kindResponse && l.sub == "message":
		s.contextCwd(l) // the oldest files tell it nowhere else
	}
	f.decide(l)
	s.link()
}

// rewritten notices that Codex rewrote the file into its newer layout, the only one that has ordinals: what it holds then is what it
// held before, and all that follows are items.
func (f *file) rewritten(l *line) {
	switch {
	case l.ord < 0:
		f.Plain = true
	case f.Plain:
		f.Plain, f.Mode = false, modePaginated
		f.Rewrit, f.Layer, f.Events = f.TS, layerItems, true
	}
}

// seen notes the first record of a spawned thread.
func (s *session) seen(stream, parent string, now int64) {
	st := s.c.Stream(stream)
	if st.Seen != 0 {
		return
	}
	st.Seen = max(now, 1)
	st.Named = s.streamOf(parent)
	if !st.Registered && !st.Noise {
		s.Waiting[stream] = true
	}
}

// streamOf is the stream of a thread.
func (s *session) streamOf(thread string) string {
	if thread == s.opts.ID {
		return adapters.Main
	}
	return thread
}

// head reads a thread's own session_meta; ancestors' ones, which copied histories bring along, say nothing about this thread.
func (s *session) head(it adapters.Item, f *file, m meta) {
	if m.id != s.own(it.Place) {
		return
	}
	th := s.threadOf(it.Place.Stream)
	if th.First == 0 {
		th.First = m.ts
	}
	if th.Cwd == "" {
		th.Cwd = m.cwd
	}
	if it.Place.Stream != adapters.Main {
		s.headChild(it.Place.Stream, m)
		return
	}
	fa := &s.c.S.Facts
	if fa.Cwd == "" {
		s.set(&fa.Cwd, m.cwd)
		s.set(&fa.LastCwd, m.cwd)
	}
	s.set(&fa.GitBranch, m.branch)
	s.set(&fa.Version, m.version)
	if fa.Entrypoint == "" {
		s.set(&fa.Entrypoint, m.originator)
	}
	if happyDriven(m.originator) {
		fa.HappyDriven = true
		s.c.Changed()
	}
}

func (s *session) headChild(stream string, m meta) {
	st := s.c.Stream(stream)
	if m.noise {
		delete(s.Waiting, stream)
		s.c.MarkNoise(stream)
		return
	}
	if m.parent != "" {
		st.Named = s.streamOf(m.parent)
	}
	if st.First == 0 {
		st.First = m.ts
	}
	if t := m.title(); t != "" {
		st.Title = t
	}
	if st.Kind = m.role; st.Kind == "" {
		st.Kind = m.nickname
	}
}

// contextCwd finds the working directory in the block about the environment that Codex writes for the model.
func (s *session) contextCwd(l *line) {
	if !hasContext(l.p) {
		return
	}
	_, rest, _ := strings.Cut(parts(adapters.Fields(l.p, "content")[0], "\n"), "<cwd>")
	if cwd, _, ok := strings.Cut(rest, "</cwd>"); ok {
		s.set(&s.c.S.Facts.Cwd, strings.TrimSpace(cwd))
		s.set(&s.c.S.Facts.LastCwd, strings.TrimSpace(cwd))
	}
}

// decide chooses the layer that a file shows. The layout of the first record tells for the oldest and the newest versions; between
// them the first message does: it lies in an event, in an item, or, in builds that write no events at all, in a response item.
func (f *file) decide(l *line) {
	switch {
	case l.kind == kindMeta:
		switch m := l.meta(); {
		case f.Layer != layerOpen:
		case m.mode == modeBare:
			f.Layer = layerResponses
		case m.mode == modePaginated:
			f.Layer = layerItems
		}
	case f.Layer != layerOpen:
	case l.kind == kindEvent:
		f.Events = true
		switch {
		case l.sub == "user_message" || l.sub == "agent_message" || l.sub == "agent_reasoning":
			f.Layer = layerEvents
		case l.item == "UserMessage" || l.item == "AgentMessage" || l.item == "Reasoning":
			f.Layer = layerItems
		}
	case l.kind != kindResponse || f.Events:
	case l.sub == "message":
		if role := l.str("role"); role == "user" {
			f.User = f.User || userWaits(l)
		} else if role == "assistant" && f.User {
			f.Layer = layerResponses
		}
	case f.User:
		f.Layer = layerResponses // the agent works and no event told of the prompt
	}
}

// userWaits says whether a response item holds what a person typed.
func userWaits(l *line) bool {
	t, n := userText(l.p)
	return t != "" || n > 0
}
