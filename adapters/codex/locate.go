package codex

import (
	"strings"
	"sync"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/watch"
)

// A rolloutName is what the name of a rollout file says. The same log can lie in a dated folder, among the archived ones, and
// compressed; its thread and segment stay.
type rolloutName struct{ thread, segment string }

// key names the log whatever its file is called now.
func (n rolloutName) key() string {
	if n.segment == "" {
		return n.thread
	}
	return n.thread + "_" + n.segment
}

// parseName reads rollout-<local time>-<thread>[_<segment>].jsonl[.zst].
func parseName(rel string) (rolloutName, bool) {
	p := split(rel)
	s, ok := strings.CutPrefix(p[len(p)-1], "rollout-")
	if !ok {
		return rolloutName{}, false
	}
	s = strings.TrimSuffix(s, ".zst")
	if s, ok = strings.CutSuffix(s, ".jsonl"); !ok {
		return rolloutName{}, false
	}
	var n rolloutName
	if i := strings.LastIndexByte(s, '_'); i >= 0 && isUUID(s[i+1:]) {
		s, n.segment = s[:i], strings.ToLower(s[i+1:])
	}
	const uuidLen = 36
	if len(s) < uuidLen || !isUUID(s[len(s)-uuidLen:]) {
		return rolloutName{}, false
	}
	n.thread = strings.ToLower(s[len(s)-uuidLen:])
	return n, true
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !(c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f') {
				return false
			}
		}
	}
	return true
}

// maxThreads bounds the memory of the registry of threads.
const maxThreads = 50000

// threads remembers, across the sessions of a home, each thread's root and the layout its file had.
type threads struct {
	mu      sync.Mutex
	roots   map[string]string // thread -> root; "" = still unknown
	parents map[string]string
	modes   map[string]string // key of a log -> history mode
}

func newThreads() *threads {
	return &threads{roots: map[string]string{}, parents: map[string]string{}, modes: map[string]string{}}
}

// Locate implements adapters.Provider. A rollout's first record names its thread; from 0.142 on it names the root of the tree, too.
// Before, a thread that was spawned by a spawned one is located once its parent's file was: until then ok is false. If that file
// never comes there is nothing below which the thread could be shown, so it stays unlocated.
func (p *Provider) Locate(root watch.Root, rel string, first func() (watch.Record, bool)) (adapters.Place, bool) {
	if root.Name == rootIndex {
		return adapters.Place{Kind: adapters.KindIndex, Key: IndexName}, rel == IndexName
	}
	n, ok := parseName(rel)
	if !ok {
		return adapters.Place{}, false
	}
	rec, ok := first()
	if !ok {
		return adapters.Place{}, false // empty: not a session yet
	}
	m, ok := parseMeta(rec)
	if !ok {
		return adapters.Place{}, false
	}
	t := p.threads
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.parents) >= maxThreads || len(t.modes) >= maxThreads {
		p.threads.roots, p.threads.parents, p.threads.modes = map[string]string{}, map[string]string{}, map[string]string{}
	}
	pl := adapters.Place{Key: n.key()}
	was := t.modes[pl.Key]
	t.modes[pl.Key] = m.mode
	pl.Rebase = m.mode == modePaginated && (was == modeLegacy || versionBefore(m.version, 147))
	t.parents[m.id] = m.parent
	r, ok := t.root(m)
	if !ok {
		return adapters.Place{}, false
	}
	t.roots[m.id] = r
	pl.Session = r
	if r != m.id || m.noise {
		pl.Stream = m.id
		pl.Group = m.parent
	}
	return pl, true
}

// root finds the root thread of the tree that a thread belongs to.
func (t *threads) root(m meta) (string, bool) {
	// A spawned thread that names itself as its root does not know better.
	if m.session != "" && (m.session != m.id || m.parent == "") {
		return m.session, true
	}
	if m.parent == "" {
		return m.id, true
	}
	if m.depth == 1 {
		return m.parent, true
	}
	at := m.parent
	for range 100 {
		if r := t.roots[at]; r != "" {
			return r, true
		}
		up, known := t.parents[at]
		if !known {
			return "", false
		}
		if up == "" {
			return at, true
		}
		at = up
	}
	return "", false
}
