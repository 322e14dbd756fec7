package claude_test

import (
	"os"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/watch"
)

// TestRandomSessions is the whole promise over random sessions of all version families: everything that was said comes out once,
// below whom it belongs; the stream is valid and closed; and neither the order in which the files are read, nor restarts, nor the
// size of the buffer change any thread of it.
func TestRandomSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		home, err := os.MkdirTemp("", "happyd-claude")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(home)
		w := newWorld(t, home)
		files := pumptest.ReadHome(t, claude.Provider{}, home)[w.sid]

		whole := pumptest.Feed(t, claude.Provider{}, w.sid, files, pumptest.Run{})
		for _, bad := range append(streamcheck.Check(whole), w.heard(whole)...) {
			t.Errorf("%s: %s", w.f.version, bad)
		}
		for _, open := range streamcheck.Open(whole) {
			t.Errorf("%s: left open: %s", w.f.version, open)
		}
		want := pumptest.Threads(whole)

		restarts := rapid.IntRange(1, 50).Draw(t, "restart every")
		n := 0
		got := pumptest.Feed(t, claude.Provider{}, w.sid, files, pumptest.Run{
			Budget:  rapid.SampledFrom([]int64{-1, 3000, 1 << 20}).Draw(t, "budget"),
			Next:    func(left []int) int { return left[rapid.IntRange(0, len(left)-1).Draw(t, "next file")] },
			Restart: func() bool { n++; return n%restarts == 0 },
		})
		for _, bad := range streamcheck.Check(got) {
			t.Errorf("%s: %s", w.f.version, bad)
		}
		if d := pumptest.Diff(want, pumptest.Threads(got)); d != "" {
			t.Errorf("%s: another order gives another stream:\n%s", w.f.version, d)
		}
	})
}

// TestLiveIsReplay follows random sessions as they are written, with the clock running and every end decided as early as it may be,
// and compares with reading them in one go afterwards.
func TestLiveIsReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		home, err := os.MkdirTemp("", "happyd-claude")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(home)
		w := newWorld(t, home)
		files := pumptest.ReadHome(t, claude.Provider{}, home)[w.sid]
		want := pumptest.Feed(t, claude.Provider{}, w.sid, files, pumptest.Run{Options: adapters.SessionOptions{Tag: "tag"}})

		type moment struct {
			at int64
			in pumptest.Input
		}
		var all []moment
		first := map[string]int64{}
		for _, in := range files {
			at := int64(0)
			for _, i := range in {
				if i.Meta == nil {
					if ts := parseTS(adapters.String(adapters.Fields(i.Rec.Data, "timestamp")[0])); ts > 0 {
						at = ts
					}
					if first[i.Place.Stream] == 0 {
						first[i.Place.Stream] = at
					}
					all = append(all, moment{at, i})
				}
			}
		}
		for _, in := range files {
			if in[0].Meta != nil {
				all = append(all, moment{first[in[0].Place.Stream] - 1, in[0]})
			}
		}
		sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
		pump, err := bridge.NewPump(claude.Provider{}, adapters.SessionOptions{ID: w.sid, Tag: "tag", Seen: pumptest.Seen{}}, buffer.New(buffer.NewBudget(0), watch.ReadRange), nil)
		if err != nil {
			t.Fatal(err)
		}
		now := all[0].at
		for _, m := range all {
			for now < m.at+100 {
				now = min(now+200, m.at+100)
				pump.Tick(now, true)
			}
			if m.in.Meta != nil {
				pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: m.in.Place.Stream, Data: m.in.Meta}, now)
			} else {
				pump.Feed(m.in.Place, m.in.Rec, now)
			}
		}
		bridge.Settle(pump, now)
		got, _ := pump.Take()
		for _, bad := range append(streamcheck.Check(got), w.heard(got)...) {
			t.Errorf("%s: %s", w.f.version, bad)
		}
		if d := pumptest.Diff(pumptest.Threads(want), pumptest.Threads(got)); d != "" {
			t.Errorf("%s: live gives another stream:\n%s", w.f.version, d)
		}
	})
}
