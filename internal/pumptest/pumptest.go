// Package pumptest feeds whole agent homes to a mapper the way a daemon does, in any order of reading, with restarts anywhere and
// with any amount of memory, and compares what comes out. Tests of all adapters share it; it is never part of the daemon.
//
// A test that uses it lives in an external test package (package x_test), because this package imports bridge.
package pumptest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// Now is the clock of a run unless the run sets its own, in Unix ms. It is later than every record of a fixture.
const Now = int64(1_900_000_000_000)

// An Input is one thing that a session's pump is fed with.
type Input struct {
	Place adapters.Place
	Rec   watch.Record
	Meta  []byte // the whole sidecar file; nil for a record
}

// Seen is a set of record identities in memory.
type Seen map[uint64]struct{}

// Has implements adapters.Seen.
func (s Seen) Has(h uint64) bool { _, ok := s[h]; return ok }

// Add implements adapters.Seen.
func (s Seen) Add(h uint64) { s[h] = struct{}{} }

// TB is what this package needs of a test. Both testing.TB and rapid's *T have it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

var _ TB = testing.TB(nil)

// ReadHome reads all files below one agent home: per source session the inputs of each file, in the order in which files are read.
func ReadHome(t TB, p adapters.Provider, home string) map[string][][]Input {
	t.Helper()
	out := map[string][][]Input{}
	for _, root := range p.Roots(home) {
		for _, path := range logs(root) {
			rel, _ := filepath.Rel(root.Path, path)
			place, ok := p.Locate(root, filepath.ToSlash(rel), func() (watch.Record, bool) {
				r, ok, _ := watch.First(path, watch.Limits{})
				return r, ok
			})
			if !ok || place.Session == "" {
				continue
			}
			var in []Input
			if place.Kind == adapters.KindMeta {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatalf("read sidecar: %v", err)
				}
				in = []Input{{Place: place, Meta: data}}
			} else {
				in = ReadFile(t, path, place)
			}
			if len(in) > 0 {
				out[place.Session] = append(out[place.Session], in)
			}
		}
	}
	return out
}

// logs lists a root's files in reading order.
func logs(root watch.Root) []string {
	var paths []string
	priority := map[string]int{}
	_ = filepath.WalkDir(root.Path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, _ := filepath.Rel(root.Path, path)
		rel = filepath.ToSlash(rel)
		switch {
		case rel == ".":
		case d.IsDir():
			if root.Descend != nil && !root.Descend(rel) {
				return filepath.SkipDir
			}
		case root.Classify(rel) != watch.Ignore:
			paths = append(paths, path)
			if root.Priority != nil {
				priority[path] = root.Priority(rel)
			}
		}
		return nil
	})
	sort.SliceStable(paths, func(i, j int) bool { return priority[paths[i]] < priority[paths[j]] })
	return paths
}

// ReadFile reads one log from its start.
func ReadFile(t TB, path string, place adapters.Place) []Input {
	t.Helper()
	var in []Input
	var c watch.Cursor
	for {
		b, err := watch.Read(path, c, watch.Limits{AcceptTail: true})
		if err != nil {
			t.Fatalf("read log: %v", err)
		}
		for _, r := range b.Records {
			in = append(in, Input{Place: place, Rec: r})
		}
		if c = b.Cursor; !b.More {
			return in
		}
	}
}

// A Run says how a session is fed. The zero Run reads file after file, without restarts, with plenty of memory.
type Run struct {
	Budget  int64                // bytes of held records kept in memory; 0 = 64 MiB, negative = none
	Next    func(left []int) int // picks the file to go on with among those that have input left
	Restart func() bool          // whether the daemon is stopped and started again now
	Now     func() int64         // clock, Unix ms
	Options adapters.SessionOptions
	Each    func(s adapters.Session) // called after every input
}

// Feed runs the files of one session through a pump to the end and returns everything that came out.
func Feed(t TB, p adapters.Provider, id string, files [][]Input, r Run) []protocol.Envelope {
	t.Helper()
	if r.Next == nil {
		r.Next = func(left []int) int { return left[0] }
	}
	if r.Restart == nil {
		r.Restart = func() bool { return false }
	}
	if r.Now == nil {
		r.Now = func() int64 { return Now }
	}
	switch {
	case r.Budget == 0:
		r.Budget = 64 << 20
	case r.Budget < 0:
		r.Budget = 0
	}
	o := r.Options
	o.ID, o.Seen = id, Seen{}
	if o.Tag == "" {
		o.Tag = "tag-" + id
	}
	f := &feeder{t: t, p: p, o: o, budget: buffer.NewBudget(r.Budget)}
	f.open(nil)
	pos := make([]int, len(files))
	for {
		var left []int
		for i := range files {
			if pos[i] < len(files[i]) {
				left = append(left, i)
			}
		}
		if len(left) == 0 {
			break
		}
		i := r.Next(left)
		in := files[i][pos[i]]
		pos[i]++
		if in.Meta != nil {
			f.pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: in.Place.Stream, Data: in.Meta}, r.Now())
		} else {
			f.pump.Feed(in.Place, in.Rec, r.Now())
		}
		f.take()
		if r.Each != nil {
			r.Each(f.pump.Session())
		}
		if r.Restart() {
			f.restart()
			f.pump.Tick(r.Now(), false)
			f.take()
		}
	}
	bridge.Settle(f.pump, r.Now())
	f.take()
	if err := f.pump.Err(); err != nil {
		t.Fatalf("held records: %v", err)
	}
	f.pump.Close()
	if n := f.budget.Used(); n != 0 {
		t.Fatalf("%d bytes of the buffer's budget were not given back", n)
	}
	return f.out
}

type feeder struct {
	t      TB
	p      adapters.Provider
	o      adapters.SessionOptions
	budget *buffer.Budget
	pump   *bridge.Pump
	out    []protocol.Envelope
}

func (f *feeder) open(saved []byte) {
	pump, err := bridge.NewPump(f.p, f.o, buffer.New(f.budget, watch.ReadRange), saved)
	if err != nil {
		f.t.Fatalf("open pump: %v", err)
	}
	f.pump = pump
}

func (f *feeder) restart() {
	saved, err := f.pump.Save()
	if err != nil {
		f.t.Fatalf("save pump: %v", err)
	}
	f.pump.Close()
	f.open(saved)
}

func (f *feeder) take() {
	envs, _ := f.pump.Take()
	f.out = append(f.out, envs...)
}

// Threads is a stream as it must come out of any order of reading: per thread the envelopes in order, without their times.
func Threads(envs []protocol.Envelope) map[string][]string {
	out := map[string][]string{}
	for _, e := range envs {
		key := "main"
		if e.Subagent != "" {
			key = e.Subagent
		}
		e.Time = 1
		b, _ := json.Marshal(e)
		out[key] = append(out[key], string(b))
	}
	return out
}

// Diff shows the first difference of each thread, "" when there is none.
func Diff(want, got map[string][]string) string {
	var b strings.Builder
	for k, w := range want {
		g := got[k]
		for i := 0; i < max(len(w), len(g)); i++ {
			var x, y string
			if i < len(w) {
				x = w[i]
			}
			if i < len(g) {
				y = g[i]
			}
			if x != y {
				fmt.Fprintf(&b, "thread %s[%d]\n want %.300s\n got  %.300s\n", k, i, x, y)
				break
			}
		}
	}
	for k := range got {
		if want[k] == nil {
			fmt.Fprintf(&b, "thread %s is new: %.200s\n", k, got[k][0])
		}
	}
	return b.String()
}

// AnyOrder checks the property of all mapping for the sessions of one home: however the files grow against each other, wherever
// the daemon is restarted, and however little memory there is, the stream is the one of a reading in one go, and valid.
func AnyOrder(t testing.TB, p adapters.Provider, home string, seeds int) {
	t.Helper()
	rates := []int{5, 50, 1000, 1_000_000}
	budgets := []int64{64 << 20, -1, 5000, 64 << 20}
	for id, files := range ReadHome(t, p, home) {
		want := Threads(Feed(t, p, id, files, Run{}))
		for seed := range seeds {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			got := Feed(t, p, id, files, Run{
				Budget:  budgets[seed%len(budgets)],
				Next:    func(left []int) int { return left[r.IntN(len(left))] },
				Restart: func() bool { return r.IntN(rates[seed%len(rates)]) == 0 },
			})
			if d := Diff(want, Threads(got)); d != "" {
				t.Errorf("%s session %s seed %d:\n%s", home, id, seed, d)
			}
			for _, bad := range streamcheck.Check(got) {
				t.Errorf("%s session %s seed %d: %s", home, id, seed, bad)
			}
		}
	}
}
