package claude

import "strings"

const inlinePrefix = "inline-"

// inline finds the stream of a sidechain record that lies in the main file, as versions 1.x wrote them: a root starts one,
// the others follow their parent.
func (s *session) inline(l *line) string {
	key := s.Side[l.parent]
	switch {
	case s.Side[l.uuid] != "":
		return s.Side[l.uuid]
	case l.root || (key == "" && s.LastSide == ""):
		key = inlinePrefix + l.uuid
	case key == "":
		key = s.LastSide
	}
	if l.uuid != "" {
		if len(s.Side) >= maxSide {
			s.Side = map[string]string{}
		}
		s.Side[l.uuid] = key
	}
	s.LastSide = key
	return key
}

// dropInline forgets the records of a finished inline sidechain: they only serve to find where the next one belongs.
func (s *session) dropInline(key string) {
	if !strings.HasPrefix(key, inlinePrefix) {
		return
	}
	for uuid, k := range s.Side {
		if k == key {
			delete(s.Side, uuid)
		}
	}
}

// stop ends a subagent's run, and with it what its own foreground children did.
func (s *session) stop(key string) {
	s.endSpawns(key)
	s.c.Stop(key)
}

// endSpawns notes that the children of a stream's open calls end with these calls.
func (s *session) endSpawns(stream string) {
	for _, sp := range s.c.S.Spawns {
		if sp.Stream == stream && s.c.CallOpen(stream, sp.Provider) {
			s.over(sp)
		}
	}
}
