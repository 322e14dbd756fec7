// Package claude maps the logs of Claude Code, from 1.0.35 on, to session-protocol envelopes.
//
// In flow the records of a session's main file and of its agents' files, the agents' .meta.json and what is known of the
// process (~/.claude/sessions/<pid>.json); out flow envelopes. File order decides what is shown and the log's own markers
// decide turns; parentUuid is never walked. Only what is known here is mapped: every other record is counted and stays on the
// machine. The package opens no file and reads no clock.
package claude

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// Name is the provider's name.
const Name = "claude"

// Provider knows Claude Code's files.
type Provider struct{}

var _ adapters.Provider = Provider{}

// Name implements adapters.Provider.
func (Provider) Name() string { return Name }

const (
	rootProjects = "claude/projects"
	rootSessions = "claude/sessions"
)

// Roots implements adapters.Provider: the transcripts, and the registry of live processes (never its key files).
func (Provider) Roots(home string) []watch.Root {
	return []watch.Root{
		{Name: rootProjects, Path: path.Join(home, "projects"), Classify: classify, Descend: descend, Priority: priority},
		{Name: rootSessions, Path: path.Join(home, "sessions"), Classify: classifyProcess, Descend: func(string) bool { return false }},
	}
}

// split cuts a relative path with either separator.
func split(rel string) []string { return strings.Split(strings.ReplaceAll(rel, `\`, "/"), "/") }

func classify(rel string) watch.Class {
	p := split(rel)
	name := p[len(p)-1]
	agent := strings.HasPrefix(name, "agent-")
	switch {
	case strings.HasPrefix(name, "agent-acompact-"), strings.HasPrefix(name, "agent-aprompt_suggestion-"):
		return watch.Ignore // the compaction's and the prompt suggestions' own agents: nobody's children
	case len(p) == 2 && strings.HasSuffix(name, ".jsonl"):
		return watch.Log
	case len(p) >= 4 && p[2] == "subagents" && agent && strings.HasSuffix(name, ".jsonl"):
		return watch.Log
	case len(p) >= 4 && p[2] == "subagents" && agent && strings.HasSuffix(name, ".meta.json"):
		return watch.Sidecar
	}
	return watch.Ignore
}

// descend admits <project>, <session>, subagents, workflows and a workflow's run.
func descend(rel string) bool {
	p := split(rel)
	switch len(p) {
	case 1:
		return true
	case 2:
		return p[1] != "memory"
	case 3:
		return p[2] == "subagents"
	case 4:
		return p[3] == "workflows"
	case 5:
		return strings.HasPrefix(p[4], "wf_")
	}
	return false
}

func priority(rel string) int {
	switch p := split(rel); {
	case len(p) == 2 && !strings.HasPrefix(p[1], "agent-"):
		return 0
	case strings.HasSuffix(rel, ".meta.json"):
		return 1
	}
	return 2
}

func classifyProcess(rel string) watch.Class {
	name := strings.TrimSuffix(rel, ".json")
	if name == rel || name == "" || strings.Trim(name, "0123456789") != "" {
		return watch.Ignore
	}
	return watch.Sidecar
}

// Locate implements adapters.Provider.
func (Provider) Locate(root watch.Root, rel string, first func() (watch.Record, bool)) (adapters.Place, bool) {
	if root.Name == rootSessions {
		return adapters.Place{Kind: adapters.KindProcess}, true
	}
	p := split(rel)
	name := p[len(p)-1]
	if len(p) == 2 {
		id := strings.TrimSuffix(name, ".jsonl")
		if !strings.HasPrefix(name, "agent-") {
			return adapters.Place{Session: id}, true
		}
		// Before the subagents folder, agents' files lay beside the sessions and only their records name the session.
		rec, ok := first()
		if !ok {
			return adapters.Place{}, false
		}
		sid := adapters.String(adapters.Fields(rec.Data, "sessionId")[0])
		if sid == "" {
			return adapters.Place{}, false
		}
		return adapters.Place{Session: sid, Stream: agentID(name)}, true
	}
	if len(p) < 4 {
		return adapters.Place{}, false
	}
	pl := adapters.Place{Session: p[1], Stream: agentID(name)}
	if len(p) > 5 && p[3] == "workflows" {
		pl.Group = p[4]
	}
	if strings.HasSuffix(name, ".meta.json") {
		pl.Kind = adapters.KindMeta
	}
	return pl, true
}

func agentID(name string) string {
	name = strings.TrimPrefix(name, "agent-")
	if s, ok := strings.CutSuffix(name, ".meta.json"); ok {
		return s
	}
	return strings.TrimSuffix(name, ".jsonl")
}

// New implements adapters.Provider.
func (Provider) New(o adapters.SessionOptions) adapters.Session { return newSession(o, &state{}) }

// Load implements adapters.Provider.
func (Provider) Load(o adapters.SessionOptions, saved []byte) (adapters.Session, error) {
	var st state
	if err := json.Unmarshal(saved, &st); err != nil {
		return nil, err
	}
	return newSession(o, &st), nil
}
