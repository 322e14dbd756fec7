// Package codex maps the logs of Codex, from 0.20 on, to session-protocol envelopes.
//
// In flow the records of rollout files (one conversation thread each: the user's own and those of spawned agents), names from
// session_index.jsonl, and what is known of the process; out flow envelopes. A second mapper, Stream, takes the output of
// `codex exec --json`. A rollout says most things twice or three times, in layers that differ by version; which layer is shown is
// decided once for each file, never by comparing texts, so that what was said twice stays twice. A thread that copies its
// parent's history is shown from its own first turn on. Only what is known here is mapped: every other record is counted and
// stays on the machine. The package opens no file and reads no clock.
package codex

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// Name is the provider's name.
const Name = "codex"

// Provider knows the files below a Codex home. Make it with NewProvider.
type Provider struct{ threads *threads }

var _ adapters.Provider = (*Provider)(nil)

// NewProvider makes the provider. It remembers which thread belongs to which root, so one serves a whole home.
func NewProvider() *Provider { return &Provider{threads: newThreads()} }

// Name implements adapters.Provider.
func (*Provider) Name() string { return Name }

const (
	rootSessions = "codex/sessions"
	rootArchived = "codex/archived"
	rootIndex    = "codex/index"
)

// IndexName is the file of a Codex home that names threads; its place is a KindIndex.
const IndexName = "session_index.jsonl"

// Roots implements adapters.Provider: rollouts by date, archived ones, and the index of names.
func (*Provider) Roots(home string) []watch.Root {
	none := func(string) bool { return false }
	return []watch.Root{
		{Name: rootSessions, Path: path.Join(home, "sessions"), Classify: classify, Descend: descend},
		{Name: rootArchived, Path: path.Join(home, "archived_sessions"), Classify: classify, Descend: none},
		{Name: rootIndex, Path: home, Classify: classifyIndex, Descend: none},
	}
}

func classify(rel string) watch.Class {
	if _, ok := parseName(rel); ok {
		return watch.Log
	}
	return watch.Ignore
}

func classifyIndex(rel string) watch.Class {
	if rel == IndexName {
		return watch.Log
	}
	return watch.Ignore
}

// descend admits sessions/YYYY/MM/DD.
func descend(rel string) bool {
	p := split(rel)
	if len(p) > 3 {
		return false
	}
	for _, s := range p {
		if s == "" || strings.Trim(s, "0123456789") != "" {
			return false
		}
	}
	return true
}

// split cuts a relative path with either separator.
func split(rel string) []string { return strings.Split(strings.ReplaceAll(rel, `\`, "/"), "/") }

// New implements adapters.Provider.
func (*Provider) New(o adapters.SessionOptions) adapters.Session { return newSession(o, &state{}) }

// Load implements adapters.Provider.
func (*Provider) Load(o adapters.SessionOptions, saved []byte) (adapters.Session, error) {
	var st state
	if err := json.Unmarshal(saved, &st); err != nil {
		return nil, err
	}
	return newSession(o, &st), nil
}

var (
	_ adapters.Keyer       = (*Provider)(nil)
	_ adapters.IndexParser = (*Provider)(nil)
)

// CursorKey implements adapters.Keyer: a log keeps its cursor when it is archived, compressed or brought back.
func (*Provider) CursorKey(rel string) string {
	if n, ok := parseName(rel); ok {
		return n.key()
	}
	return ""
}

// ParseIndex implements adapters.IndexParser.
func (*Provider) ParseIndex(data []byte) (session, title string, ok bool) {
	session, title, _, ok = ParseIndexLine(data)
	return session, title, ok
}
