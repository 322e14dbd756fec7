//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
)

// threads takes a stream apart into its main thread ("") and its subagents', without what depends on the login (ids) and on the
// clock (times): turns are numbered in their order.
func threads(t *testing.T, envs []protocol.Envelope) map[string][]string {
	t.Helper()
	turns := map[string]int{}
	out := map[string][]string{}
	for _, e := range envs {
		if e.Ev.T == protocol.TypeService && e.Ev.Text == "" {
			continue // only a count of tokens
		}
		if _, known := turns[e.Turn]; !known && e.Turn != "" {
			turns[e.Turn] = len(turns) + 1
		}
		ev, err := e.Ev.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Subagent] = append(out[e.Subagent], fmt.Sprintf("%s turn %d %s", e.Role, turns[e.Turn], ev))
	}
	return out
}

// mapped is what the logs of a machine mean without any daemon, by conversation.
func mapped(t *testing.T, m *harness.Machine) map[string][]protocol.Envelope {
	t.Helper()
	out := map[string][]protocol.Envelope{}
	_, err := bridge.MapHome(claude.Provider{}, filepath.Join(m.Home, ".claude"), adapters.SessionOptions{}, time.Now().UnixMilli(),
		func(id string, e protocol.Envelope) error {
			out[id] = append(out[id], e)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wantMapped checks that the server holds exactly what the logs mean: every conversation once, each thread complete and in its
// order, valid streams with nothing open.
func wantMapped(t *testing.T, m *harness.Machine) map[string]harness.Stream {
	t.Helper()
	streams := byNative(t, mustStreams(t, m))
	want := mapped(t, m)
	for id := range streams {
		if want[id] == nil {
			t.Errorf("the server holds %s, which no log tells of", id)
		}
	}
	for id, envs := range want {
		got := streams[id]
		for _, problem := range streamcheck.Check(got.Envs) {
			t.Errorf("%s %s", id, problem)
		}
		for _, open := range streamcheck.Open(got.Envs) {
			t.Errorf("%s: %s is still open", id, open)
		}
		if got.Replaced > 0 {
			t.Errorf("%s: %d messages were replaced", id, got.Replaced)
		}
		have := threads(t, got.Envs)
		for thread, lines := range threads(t, envs) {
			if !slices.Equal(have[thread], lines) {
				t.Errorf("%s, thread %q: %s", id, thread, firstDifference(have[thread], lines))
			}
			delete(have, thread)
		}
		for thread := range have {
			t.Errorf("%s: thread %q has no log", id, thread)
		}
	}
	if t.Failed() && os.Getenv("HAPPYD_KEEP") != "" {
		for id, stream := range streams {
			data, err := json.Marshal(stream)
			if err == nil {
				err = os.WriteFile(m.Path("stream-"+id+".json"), data, 0o600)
			}
			if err != nil {
				t.Log(err)
			}
		}
	}
	return streams
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		g, w := "(end)", "(end)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return fmt.Sprintf("%d of %d envelopes, at %d\n got %s\nwant %s\n before %s", len(got), len(want), i, g, w, strings.Join(got[max(0, i-2):min(i, len(got))], "\n        "))
		}
	}
	return ""
}

// ids lists the ids of all streams, in order, to see that nothing changed.
func ids(all map[string]harness.Stream) map[string][]string {
	out := map[string][]string{}
	for id, s := range all {
		for _, e := range s.Envs {
			out[id] = append(out[id], e.ID)
		}
	}
	return out
}
