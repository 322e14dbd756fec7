package codex_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

// corpusHomes lists homes of real rollouts where they lie beside the repository.
func corpusHomes(t testing.TB) []string {
	base, err := filepath.Abs("../../../shared/corpus/codex")
	if err != nil {
		t.Fatal(err)
	}
	var homes []string
	m, _ := filepath.Glob(filepath.Join(base, "*", "*"))
	for _, h := range m {
		if st, err := os.Stat(h); err == nil && st.IsDir() {
			homes = append(homes, h)
		}
	}
	if len(homes) < 10 {
		t.Skip("no corpus of real rollouts beside the repository")
	}
	return homes
}

const testNow = int64(1_900_000_000_000)

// mapHome maps all sessions of a home.
func mapHome(t testing.TB, home string) (map[string][]protocol.Envelope, bridge.MapResult) {
	out := map[string][]protocol.Envelope{}
	res, err := bridge.MapHome(codex.NewProvider(), home, adapters.SessionOptions{}, testNow, func(s string, e protocol.Envelope) error {
		out[s] = append(out[s], e)
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", home, err)
	}
	return out, res
}

// TestCorpusIsValid maps every real rollout: no panic, valid streams, nothing left open, everything left out has a name.
func TestCorpusIsValid(t *testing.T) {
	skipped := map[string]int{}
	orphans := 0
	for _, home := range corpusHomes(t) {
		out, res := mapHome(t, home)
		for k, n := range res.Skipped {
			skipped[k] += n
		}
		if res.Orphans > 0 {
			t.Errorf("%s: %d orphans", home, res.Orphans)
			orphans += res.Orphans
		}
		for id, envs := range out {
			for _, bad := range append(streamcheck.Check(envs), streamcheck.Open(envs)...) {
				t.Errorf("%s session %s: %s", home, id, bad)
			}
		}
	}
	t.Logf("left out: %v", skipped)
}

// TestDump writes what a home maps to, for a look: CODEX_DUMP=<home> go test -run TestDump -v.
func TestDump(t *testing.T) {
	home := os.Getenv("CODEX_DUMP")
	if home == "" {
		t.Skip("CODEX_DUMP is not set")
	}
	out, res := mapHome(t, home)
	for id, envs := range out {
		fmt.Println("==", id)
		for _, e := range envs {
			fmt.Println(brief(e))
		}
	}
	b, _ := json.Marshal(res)
	fmt.Println(string(b))
}

// brief is an envelope on one line.
func brief(e protocol.Envelope) string {
	var b strings.Builder
	if e.Subagent != "" {
		fmt.Fprintf(&b, "  [%s] ", e.Subagent[:6])
	}
	fmt.Fprintf(&b, "%s %s", e.Role, e.Ev.T)
	if e.Turn != "" {
		fmt.Fprintf(&b, " turn=%s", e.Turn[:5])
	}
	switch e.Ev.T {
	case protocol.TypeText, protocol.TypeService:
		fmt.Fprintf(&b, " %.80q", e.Ev.Text)
		if e.Ev.Thinking {
			b.WriteString(" thinking")
		}
	case protocol.TypeToolStart:
		fmt.Fprintf(&b, " %s %s %.60q %.200s", e.Ev.Call, e.Ev.Name, e.Ev.Title, e.Ev.Args)
	case protocol.TypeToolEnd:
		fmt.Fprintf(&b, " %s", e.Ev.Call)
	case protocol.TypeTurnEnd:
		fmt.Fprintf(&b, " %s", e.Ev.Status)
	case protocol.TypeStart:
		fmt.Fprintf(&b, " %q", e.Ev.Title)
	}
	if e.Usage != nil {
		u, _ := json.Marshal(e.Usage)
		fmt.Fprintf(&b, " usage=%s", u)
	}
	return b.String()
}

var _ = fs.ErrNotExist
