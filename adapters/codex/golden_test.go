package codex_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

var update = flag.Bool("update", false, "write the expected envelopes anew")

// TestGolden maps each home below testdata and compares all envelopes, ids included: a change of ids doubles every message.
func TestGolden(t *testing.T) {
	for _, home := range fixtureHomes(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			out, res := mapHome(t, home)
			if res.Orphans > 0 {
				t.Errorf("%d orphans", res.Orphans)
			}
			golden(t, filepath.Join(home, "want.jsonl"), out)
		})
	}
}

func TestGoldenStreams(t *testing.T) {
	paths, _ := filepath.Glob("testdata/streams/*.jsonl")
	for _, path := range paths {
		if strings.HasSuffix(path, ".want.jsonl") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			id, files := streamInputs(t, path)
			r := run{provider: codex.StreamProvider{}, id: id, next: func(left []int) int { return left[0] }, restart: func() bool { return false }}
			golden(t, strings.TrimSuffix(path, ".jsonl")+".want.jsonl", map[string][]protocol.Envelope{id: r.do(t, files)})
		})
	}
}

func fixtureHomes(t testing.TB) []string {
	m, err := filepath.Glob("testdata/*/sessions")
	if err != nil || len(m) == 0 {
		t.Fatal("no fixtures", err)
	}
	for i := range m {
		m[i] = filepath.Dir(m[i])
	}
	return m
}

func golden(t *testing.T, path string, out map[string][]protocol.Envelope) {
	var got bytes.Buffer
	ids := make([]string, 0, len(out))
	for id, envs := range out {
		ids = append(ids, id)
		for _, bad := range append(streamcheck.Check(envs), streamcheck.Open(envs)...) {
			t.Errorf("session %s: %s", id, bad)
		}
	}
	sort.Strings(ids)
	for _, id := range ids {
		for _, e := range out[id] {
			b, err := json.Marshal(map[string]any{"session": id, "env": e})
			if err != nil {
				t.Fatal(err)
			}
			got.Write(append(b, '\n'))
		}
	}
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w, g := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(w), len(g)) {
		var x, y string
		if i < len(w) {
			x = w[i]
		}
		if i < len(g) {
			y = g[i]
		}
		if x != y {
			t.Fatalf("envelope %d\n want %s\n got  %s", i, x, y)
		}
	}
}

func TestFixturesInAnyOrder(t *testing.T) {
	for _, home := range fixtureHomes(t) {
		checkAnyOrder(t, home, sessionInputs(t, home), 9)
	}
}
