package claude_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// An appearance is one moment of a recorded schedule: lines, a sidecar or a process state became visible.
type appearance struct {
	T    float64         `json:"t"` // seconds
	File string          `json:"f"`
	N    int             `json:"n"` // lines visible up to here
	Meta json.RawMessage `json:"meta"`
	Sess *struct {
		PID     int
		Session string `json:"sessionId"`
		Status  string `json:"status"`
	} `json:"sess"`
}

// TestRecordedSchedules replays real sessions under a clock, line by line as they became visible, with what their process files
// said. Live reading must give the stream that reading in one go gives: the same envelopes, thread by thread.
func TestRecordedSchedules(t *testing.T) {
	base, _ := filepath.Abs("../../../shared/corpus/claude/live")
	schedules, _ := filepath.Glob(filepath.Join(base, "*/schedule.jsonl"))
	older, _ := filepath.Glob(filepath.Join(base, "*/*/schedule.jsonl"))
	if len(schedules) == 0 {
		t.Skip("no recorded schedules beside the repository")
	}
	for _, file := range append(schedules, older...) {
		home := filepath.Dir(file)
		name, _ := filepath.Rel(base, home)
		t.Run(name, func(t *testing.T) {
			sessions := pumptest.ReadHome(t, claude.Provider{}, home)
			for id, files := range sessions {
				want := pumptest.Threads(pumptest.Feed(t, claude.Provider{}, id, files, pumptest.Run{Options: adapters.SessionOptions{Tag: "tag"}}))
				got := replay(t, home, id, files, readSchedule(t, file))
				for _, bad := range streamcheck.Check(got) {
					t.Errorf("session %s: %s", id, bad)
				}
				for _, open := range streamcheck.Open(got) {
					t.Errorf("session %s leaves open: %s", id, open)
				}
				if d := pumptest.Diff(want, pumptest.Threads(got)); d != "" {
					t.Errorf("session %s live differs:\n%s", id, d)
				}
			}
		})
	}
}

func readSchedule(t *testing.T, file string) (out []appearance) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var a appearance
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// lineOf numbers the line that a record stands in, from 1.
func lineOf(data []byte, off int64) int { return bytes.Count(data[:off], []byte("\n")) + 1 }

// replay feeds one session as its schedule tells.
func replay(t *testing.T, home, id string, files [][]pumptest.Input, schedule []appearance) []protocol.Envelope {
	type pending struct {
		in   pumptest.Input
		line int
	}
	left := map[string][]pending{}
	zero := int64(0) // the clock at the schedule's start: late enough for every record to lie in the past when it appears
	seen := map[string]float64{}
	for _, a := range schedule {
		seen[a.File] = a.T
	}
	for _, in := range files {
		if in[0].Meta != nil {
			continue
		}
		path := in[0].Rec.Path
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rel, _ := filepath.Rel(filepath.Join(home, "projects"), path)
		for _, i := range in {
			left[filepath.ToSlash(rel)] = append(left[filepath.ToSlash(rel)], pending{i, lineOf(data, i.Rec.Offset)})
		}
	}
	at := func(rel string, line int) float64 {
		for _, a := range schedule {
			if a.File == rel && a.N >= line {
				return a.T
			}
		}
		return schedule[len(schedule)-1].T
	}
	for rel, ps := range left {
		for _, p := range ps {
			var r struct{ Timestamp string }
			_ = json.Unmarshal(p.in.Rec.Data, &r)
			if ts := parseTS(r.Timestamp); ts > 0 {
				zero = max(zero, ts-int64(at(rel, p.line)*1000))
			}
		}
	}
	pump, err := bridge.NewPump(claude.Provider{}, adapters.SessionOptions{ID: id, Tag: "tag", Seen: pumptest.Seen{}}, buffer.New(buffer.NewBudget(100_000), watch.ReadRange), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := zero
	feed := func(rel string, upTo int) {
		ps := left[rel]
		for len(ps) > 0 && ps[0].line <= upTo {
			pump.Feed(ps[0].in.Place, ps[0].in.Rec, now)
			ps = ps[1:]
		}
		left[rel] = ps
	}
	for _, a := range schedule {
		for due := zero + int64(a.T*1000); now < due; {
			now = min(due, now+40)
			pump.Tick(now, true)
		}
		switch {
		case a.Sess != nil && a.Sess.Session == id:
			pump.Observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: adapters.Process{Known: true, Alive: true, PID: a.Sess.PID, Status: a.Sess.Status, StatusAt: now}}, now)
		case a.Sess == nil && a.File == "":
			pump.Observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: adapters.Process{Known: true}}, now)
		case a.N > 0:
			feed(a.File, a.N)
		case a.Meta != nil && strings.Contains(a.File, id):
			stream := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(a.File), "agent-"), ".meta.json")
			pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: stream, Data: a.Meta}, now)
		}
	}
	rels := make([]string, 0, len(left))
	for rel := range left {
		rels = append(rels, rel)
	}
	sort.Slice(rels, func(i, j int) bool { return len(rels[i]) < len(rels[j]) })
	for _, rel := range rels {
		feed(rel, 1<<30)
	}
	for range 100 {
		now += 40
		pump.Tick(now, true)
	}
	bridge.Settle(pump, now)
	out, _ := pump.Take()
	return out
}
