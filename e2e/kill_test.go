//go:build unix

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/e2e/loggen"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// kills is how often a daemon is killed: HAPPYD_KILLS, or as often as a quick test can.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("HAPPYD_KILLS")
	if text == "" {
		return 25
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKilled kills the daemon at random moments, also while it starts, while sessions with nested and parallel subagents are
// written. With the embedded relay, the relay dies with it; with a server of its own, what was sent and not yet acknowledged is
// sent again.
func TestKilled(t *testing.T) {
	t.Parallel()
	n := kills(t)
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		killed(t, machine(t, harness.Options{}), n, 1)
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		s := fakehappy.New()
		s.SetFault(func(r fakehappy.Request) fakehappy.Fault {
			if !r.IsMessages() {
				return fakehappy.Fault{}
			}
			// Answers take a while, so that kills hit between the commit there and the acknowledgement here.
			return fakehappy.Fault{Delay: time.Duration(rand.IntN(60)) * time.Millisecond, DropAnswer: rand.IntN(10) == 0}
		})
		killed(t, harness.NewWithFake(t, harness.Options{Bin: bin}, s), n, 2)
	})
}

func killed(t *testing.T, m *harness.Machine, n int, seed uint64) {
	const life = 700 * time.Millisecond // of a daemon, on average
	turns := max(3, n/4)
	projects := filepath.Join(m.Home, ".claude", "projects")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	written := make(chan error, 2)
	write := func(id string, seed uint64, turns int) []loggen.Write {
		all := loggen.Session(loggen.Options{ID: id, Seed: seed, Turns: turns})
		pace := time.Duration(n) * (life + 150*time.Millisecond) / time.Duration(len(all)+1)
		go func() { written <- loggen.Writer{Dir: projects, Pace: pace, Seed: seed}.Run(ctx, all) }()
		return all
	}
	m.Start()
	one := write("c0ffee00-0000-4000-8000-0000000000a1", seed, turns)
	// A new session waits some seconds before it is sent; from then on every moment is a good one.
	if !harness.Wait(30*time.Second, func() bool {
		ses, ok := m.Session("c0ffee00-0000-4000-8000-0000000000a1")
		return ok && ses.LastAckedSeq > 0
	}) {
		t.Fatal("nothing was delivered")
	}
	two := write("c0ffee00-0000-4000-8000-0000000000a2", seed+100, turns)
	rng := rand.New(rand.NewPCG(seed, 3))
	began := time.Now()
	for i := range n {
		lives := time.Duration(rng.ExpFloat64() * float64(life))
		if i%20 == 10 {
			lives = 4 * time.Second // long enough for the second session
		}
		time.Sleep(min(lives, 5*time.Second))
		m.Kill()
		m.Spawn()
	}
	took := time.Since(began)
	for range 2 {
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	m.Settle()
	before := wantMapped(t, m)
	if t.Failed() {
		return
	}
	t.Logf("%d kills in %v; %d records became %d envelopes", n, took.Round(time.Second),
		loggen.Records(one)+loggen.Records(two), len(before["c0ffee00-0000-4000-8000-0000000000a1"].Envs)+len(before["c0ffee00-0000-4000-8000-0000000000a2"].Envs))

	// Without its state, the daemon reads everything again, and the server changes nothing.
	m.Stop()
	if err := os.RemoveAll(m.StateDir()); err != nil {
		t.Fatal(err)
	}
	m.Start()
	m.Settle()
	if after := wantMapped(t, m); !reflect.DeepEqual(ids(before), ids(after)) {
		t.Error("a lost state directory changed what the server holds: " + fmt.Sprint(len(before), len(after)))
	}
	m.Stop()
}
