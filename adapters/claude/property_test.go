package claude_test

import (
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
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
