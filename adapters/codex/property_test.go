package codex_test

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// seenSet is a set of identities that outlives its mapper.
type seenSet map[uint64]struct{}

func (s seenSet) Has(h uint64) bool { _, ok := s[h]; return ok }
func (s seenSet) Add(h uint64)      { s[h] = struct{}{} }

// An input is one record of a located file.
type input struct {
	place adapters.Place
	rec   watch.Record
}

// sessionInputs reads the rollouts of a home, per session and file.
func sessionInputs(t testing.TB, home string) map[string][][]input {
	p := codex.NewProvider()
	out := map[string][][]input{}
	for _, root := range p.Roots(home) {
		_ = filepath.WalkDir(root.Path, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			rel, _ := filepath.Rel(root.Path, path)
			if rel == "." {
				return nil
			}
			if d.IsDir() {
				if !root.Descend(filepath.ToSlash(rel)) {
					return filepath.SkipDir
				}
				return nil
			}
			if root.Classify(rel) != watch.Log {
				return nil
			}
			place, ok := p.Locate(root, rel, func() (watch.Record, bool) {
				r, ok, _ := watch.First(path, watch.Limits{})
				return r, ok
			})
			if ok && place.Kind == adapters.KindLog {
				if in := readInputs(t, path, place); len(in) > 0 {
					out[place.Session] = append(out[place.Session], in)
				}
			}
			return nil
		})
	}
	return out
}

func readInputs(t testing.TB, path string, place adapters.Place) []input {
	var in []input
	var c watch.Cursor
	for {
		b, err := watch.Read(path, c, watch.Limits{AcceptTail: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records {
			in = append(in, input{place, r})
		}
		if c = b.Cursor; !b.More {
			return in
		}
	}
}

// A run maps the files of one session in some order, with restarts.
type run struct {
	provider adapters.Provider
	id       string
	budget   int64
	next     func(left []int) int
	restart  func() bool
	reread   buffer.Reread // nil: from the files
}

func (r run) do(t testing.TB, files [][]input) []protocol.Envelope {
	seen := seenSet{}
	reread := r.reread
	if reread == nil {
		reread = watch.ReadRange
	}
	open := func(saved []byte) *bridge.Pump {
		pump, err := bridge.NewPump(r.provider, adapters.SessionOptions{ID: r.id, Tag: "tag-" + r.id, Seen: seen}, buffer.New(buffer.NewBudget(r.budget), reread), saved)
		if err != nil {
			t.Fatal(err)
		}
		return pump
	}
	pump := open(nil)
	var out []protocol.Envelope
	take := func() {
		envs, _ := pump.Take()
		out = append(out, envs...)
	}
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
		i := r.next(left)
		in := files[i][pos[i]]
		pos[i]++
		pump.Feed(in.place, in.rec, testNow)
		take()
		if r.restart() {
			saved, err := pump.Save()
			if err != nil {
				t.Fatal(err)
			}
			pump.Close()
			pump = open(saved)
			pump.Tick(testNow, false)
			take()
		}
	}
	bridge.Settle(pump, testNow)
	take()
	pump.Close()
	return out
}

// checkAnyOrder is the property of the whole mapping: however the files of a session grow against each other, wherever the daemon is
// restarted, and however little memory the buffer has, the stream is the one of a reading in one go.
func checkAnyOrder(t *testing.T, name string, sessions map[string][][]input, seeds int) {
	for id, files := range sessions {
		r := run{provider: codex.NewProvider(), id: id, budget: 64 << 20, next: func(left []int) int { return left[0] }, restart: func() bool { return false }}
		want := pumptest.Threads(r.do(t, files))
		for seed := range seeds {
			rnd := rand.New(rand.NewPCG(uint64(seed), 11))
			rate := []int{4, 40, 1000}[seed%3]
			r.budget = []int64{64 << 20, 0, 5000}[seed%3]
			r.next = func(left []int) int { return left[rnd.IntN(len(left))] }
			r.restart = func() bool { return rnd.IntN(rate) == 0 }
			got := r.do(t, files)
			if d := pumptest.Diff(want, pumptest.Threads(got)); d != "" {
				t.Errorf("%s session %s seed %d:\n%s", name, id, seed, d)
			}
			for _, bad := range append(streamcheck.Check(got), streamcheck.Open(got)...) {
				t.Errorf("%s session %s seed %d: %s", name, id, seed, bad)
			}
		}
	}
}

func TestCorpusInAnyOrder(t *testing.T) {
	seeds := 2
	if testing.Short() {
		seeds = 1
	}
	for _, home := range corpusHomes(t) {
		checkAnyOrder(t, home, sessionInputs(t, home), seeds)
	}
}

func TestCasesInAnyOrder(t *testing.T) {
	for _, home := range caseHomes(t) {
		checkAnyOrder(t, home, sessionInputs(t, home), 6)
	}
}

// caseHomes lists the Codex homes of the cases from bug reports where they lie beside the repository.
func caseHomes(t testing.TB) []string {
	m, _ := filepath.Glob("../../../shared/cases/*/*/in/home/.codex")
	if len(m) == 0 {
		t.Skip("no cases beside the repository")
	}
	return m
}

func newBuffer() *buffer.Buffer { return buffer.New(buffer.NewBudget(64<<20), watch.ReadRange) }

// fromMemory reads held records again from where the test has them.
func fromMemory(files [][]input) buffer.Reread {
	return func(path string, from, to int64, fn func(watch.Record) error) error {
		for _, in := range files {
			for _, i := range in {
				if i.rec.Path == path && i.rec.Offset >= from && i.rec.Offset < to {
					if err := fn(i.rec); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
}
