package bridge

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
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// An input is one thing a session's pump can be fed with, in the order of its file.
type input struct {
	place adapters.Place
	rec   watch.Record
	meta  []byte
}

// sessionInputs reads all files of a home, per session and file.
func sessionInputs(t testing.TB, p adapters.Provider, home string) map[string][][]input {
	out := map[string][][]input{}
	for _, root := range p.Roots(home) {
		var paths []string
		_ = filepath.WalkDir(root.Path, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				paths = append(paths, path)
			}
			return nil
		})
		sort.SliceStable(paths, func(i, j int) bool {
			a, _ := filepath.Rel(root.Path, paths[i])
			b, _ := filepath.Rel(root.Path, paths[j])
			return root.Priority != nil && root.Priority(a) < root.Priority(b)
		})
		for _, path := range paths {
			rel, _ := filepath.Rel(root.Path, path)
			if root.Classify(rel) == watch.Ignore {
				continue
			}
			place, ok := p.Locate(root, rel, func() (watch.Record, bool) {
				r, ok, _ := watch.First(path, watch.Limits{})
				return r, ok
			})
			if !ok || place.Session == "" {
				continue
			}
			var in []input
			if place.Kind == adapters.KindMeta {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				in = []input{{place: place, meta: data}}
			} else {
				in = readInputs(t, path, place)
			}
			if len(in) > 0 {
				out[place.Session] = append(out[place.Session], in)
			}
		}
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
			in = append(in, input{place: place, rec: r})
		}
		if c = b.Cursor; !b.More {
			return in
		}
	}
}

const testNow = int64(1_900_000_000_000)

// runInputs feeds a session. next picks the file to go on with among those that have input left; restart says when the daemon
// is stopped and started again.
func runInputs(t testing.TB, p adapters.Provider, id string, files [][]input, budget int64, next func(left []int) int, restart func() bool) []protocol.Envelope {
	seen := offlineSeen{}
	o := adapters.SessionOptions{ID: id, Tag: "tag-" + id, Seen: seen}
	open := func(saved []byte) *Pump {
		pump, err := NewPump(p, o, buffer.New(buffer.NewBudget(budget), watch.ReadRange), saved)
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
		i := next(left)
		in := files[i][pos[i]]
		pos[i]++
		if in.meta != nil {
			pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: in.place.Stream, Data: in.meta}, testNow)
		} else {
			pump.Feed(in.place, in.rec, testNow)
		}
		take()
		if restart() {
			saved, err := pump.Save()
			if err != nil {
				t.Fatal(err)
			}
			pump.Close()
			pump = open(saved)
			pump.Tick(testNow, len(left) == 1)
			take()
		}
	}
	Settle(pump, testNow)
	take()
	return out
}

// threads is a stream as it must come out of any order of reading: per thread the envelopes in order, without their times.
func threads(envs []protocol.Envelope) map[string][]string {
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

func diffThreads(want, got map[string][]string) string {
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

// TestAnyInterleavingAnyRestartSameStream is the property of the whole mapping: however the files of a session grow against each
// other, wherever the daemon is restarted, and however little memory the buffer has, the stream is the one of a reading in one go.
func TestAnyInterleavingAnyRestartSameStream(t *testing.T) {
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for _, home := range corpusHomes(t) {
		for id, files := range sessionInputs(t, claude.Provider{}, home) {
			never := func() bool { return false }
			whole := runInputs(t, claude.Provider{}, id, files, 64<<20, func(left []int) int { return left[0] }, never)
			want := threads(whole)
			for seed := range seeds {
				r := rand.New(rand.NewPCG(uint64(seed), 7))
				rate := []int{5, 50, 1000, 1_000_000}[seed%4]
				got := runInputs(t, claude.Provider{}, id, files, []int64{64 << 20, 0, 5000, 64 << 20}[seed%4],
					func(left []int) int { return left[r.IntN(len(left))] },
					func() bool { return r.IntN(rate) == 0 })
				if d := diffThreads(want, threads(got)); d != "" {
					t.Errorf("%s session %s seed %d:\n%s", home, id, seed, d)
				}
				for _, bad := range streamcheck.Check(got) {
					t.Errorf("%s session %s seed %d: %s", home, id, seed, bad)
				}
			}
		}
	}
}
