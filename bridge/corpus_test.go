package bridge_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

// corpusHomes lists agent homes of real transcripts where they lie beside the repository.
func corpusHomes(t testing.TB) []string {
	base, err := filepath.Abs("../../shared/corpus/claude")
	if err != nil {
		t.Fatal(err)
	}
	var homes []string
	for _, pattern := range []string{"lab/*/projects", "live/*/projects", "live/*/*/projects"} {
		m, _ := filepath.Glob(filepath.Join(base, pattern))
		for _, p := range m {
			homes = append(homes, filepath.Dir(p))
		}
	}
	found, _ := filepath.Glob(filepath.Join(base, "found/*"))
	for _, f := range found {
		home := t.TempDir()
		if err := os.MkdirAll(filepath.Join(home, "projects"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(home, "projects", filepath.Base(f)), os.DirFS(f)); err != nil {
			t.Fatal(err)
		}
		homes = append(homes, home)
	}
	if len(homes) < 10 {
		t.Skip("no corpus of real Claude Code transcripts beside the repository")
	}
	return homes
}

func TestCorpusMapsToValidStreams(t *testing.T) {
	total := map[string]int{}
	for _, home := range corpusHomes(t) {
		bySession := map[string][]protocol.Envelope{}
		res, err := bridge.MapHome(claude.Provider{}, home, adapters.SessionOptions{}, time.Now().UnixMilli(), func(s string, e protocol.Envelope) error {
			bySession[s] = append(bySession[s], e)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", home, err)
		}
		for k, n := range res.Skipped {
			total[k] += n
		}
		if res.Orphans > 0 {
			t.Logf("%s: %d orphans", home, res.Orphans)
		}
		for s, envs := range bySession {
			for _, bad := range streamcheck.Check(envs) {
				t.Errorf("%s %s %s", home, s, bad)
			}
			for _, open := range streamcheck.Open(envs) {
				t.Errorf("%s %s left open: %s", home, s, open)
			}
		}
	}
	t.Logf("left out: %v", total)
}
