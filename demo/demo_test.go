package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is what the tests look at in a log line.
type record struct {
	Type        string
	UUID        string
	ParentUUID  *string `json:"parentUuid"`
	SessionID   string  `json:"sessionId"`
	AgentID     string  `json:"agentId"`
	IsSidechain bool    `json:"isSidechain"`
	Timestamp   string
	Cwd         string
	Message     struct {
		Content json.RawMessage
	}
}

func readLog(t *testing.T, path string) []record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(data, []byte("\n")) {
		t.Errorf("%s does not end with a newline", path)
	}
	if bytes.Contains(data, []byte("@{")) {
		t.Errorf("%s holds a placeholder", path)
	}
	var recs []record
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v: %s", path, err, lines.Bytes())
		}
		recs = append(recs, r)
	}
	return recs
}

func glob(t *testing.T, pattern string, want int) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != want {
		t.Fatalf("%s: found %v, %v; want %d", pattern, found, err, want)
	}
	return found
}

func TestReplayWritesOneSessionWithThreeSubagents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		start := time.Now()
		var said []string
		if err := Replay(t.Context(), dir, 1, func(s string) { said = append(said, s) }); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < Duration-time.Second || d > Duration+time.Second {
			t.Errorf("took %v", d)
		}
		if len(said) < 3 {
			t.Errorf("said %q", said)
		}

		projects := filepath.Join(dir, ".claude", "projects", "*")
		main := glob(t, filepath.Join(projects, "*.jsonl"), 1)[0]
		session := strings.TrimSuffix(filepath.Base(main), ".jsonl")
		recs := readLog(t, main)
		uuids := map[string]bool{}
		check := func(recs []record, agent string) {
			last := ""
			for i, r := range recs {
				if r.SessionID != session {
					t.Errorf("record %d has session %q", i, r.SessionID)
				}
				if r.UUID == "" {
					continue // bookkeeping
				}
				if uuids[r.UUID] {
					t.Errorf("uuid %s twice", r.UUID)
				}
				uuids[r.UUID] = true
				if got := r.ParentUUID; (got == nil) != (last == "") || got != nil && *got != last {
					t.Errorf("record %d does not hang on the one before it", i)
				}
				last = r.UUID
				if r.AgentID != agent || r.IsSidechain != (agent != "") {
					t.Errorf("record %d: agent %q, sidechain %v", i, r.AgentID, r.IsSidechain)
				}
				at, err := time.Parse(time.RFC3339, r.Timestamp)
				if err != nil || at.Before(start.Add(-time.Second)) || at.After(time.Now()) {
					t.Errorf("record %d: time %q, %v", i, r.Timestamp, err)
				}
				if info, err := os.Stat(r.Cwd); err != nil || !info.IsDir() {
					t.Errorf("record %d: working directory %q, %v", i, r.Cwd, err)
				}
			}
		}
		check(recs, "")
		if last := recs[len(recs)-2]; last.Type != "system" {
			t.Errorf("the session ends with %q", last.Type)
		}

		subagents := filepath.Join(projects, session, "subagents")
		for _, path := range glob(t, filepath.Join(subagents, "*.jsonl"), 3) {
			agent := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "agent-"), ".jsonl")
			check(readLog(t, path), agent)
			data, err := os.ReadFile(strings.TrimSuffix(path, ".jsonl") + ".meta.json")
			if err != nil {
				t.Fatal(err)
			}
			var meta struct {
				ToolUseID string `json:"toolUseId"`
				Finished  bool   `json:"finished"`
			}
			if err := json.Unmarshal(data, &meta); err != nil || !meta.Finished {
				t.Errorf("meta %s, %v", data, err)
			}
			log, err := os.ReadFile(main)
			if err != nil || !bytes.Contains(log, []byte(`"id":"`+meta.ToolUseID+`","name":"Agent"`)) {
				t.Errorf("no call spawns %s", agent)
			}
		}
		glob(t, filepath.Join(subagents, "*"), 6) // nothing temporary is left
	})
}

func TestSubagentsAreCompleteBeforeTheirParentIsKnown(t *testing.T) {
	steps, err := parse(transcript)
	if err != nil {
		t.Fatal(err)
	}
	spawned, lastChild := math.Inf(1), 0.0
	for _, s := range steps {
		switch {
		case s.File == "main" && bytes.Contains(s.Rec, []byte(`"name":"Agent"`)):
			spawned = min(spawned, s.At)
		case s.File != "" && s.File != "main":
			lastChild = max(lastChild, s.At)
		}
	}
	if lastChild == 0 || spawned < lastChild+1 {
		t.Errorf("last line of a child at %v s, parent at %v s", lastChild, spawned)
	}
}

func TestTwoReplaysAreTwoSessions(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := Replay(t.Context(), dir, 1e6, nil); err != nil {
			t.Fatal(err)
		}
	}
	glob(t, filepath.Join(dir, ".claude", "projects", "*", "*.jsonl"), 2)
}

func TestReplayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := Replay(ctx, t.TempDir(), 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestReplayRefuses(t *testing.T) {
	for _, speed := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if err := Replay(t.Context(), t.TempDir(), speed, nil); err == nil {
			t.Errorf("speed %v was accepted", speed)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replay(t.Context(), file, 1, nil); err == nil {
		t.Error("a file was accepted as a home")
	}
}
