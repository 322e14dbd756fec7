package uplink

import (
	"context"
	"encoding/base64"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

func decode64(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(s) }

func TestBackoffGrowsToItsCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(-1, 1_000_000).Draw(t, "attempt")
		d := backoff(attempt, func() float64 { return rapid.Float64Range(0, 1).Draw(t, "r") })
		if d < 0 || d > backoffCap {
			t.Fatalf("attempt %d waits %v", attempt, d)
		}
	})
	one := func() float64 { return 1 }
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := backoff(i+1, one); got != want*time.Second {
			t.Errorf("attempt %d: at most %v", i+1, got)
		}
	}
}

// TestGateLetsOneTry: after a failure everyone waits, then one goes, and all
// follow when it comes back with an answer.
func TestGateLetsOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(func() float64 { return 1 })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := g.enter(ctx); err != nil {
			t.Fatal(err)
		}
		g.fail("down")
		var in []time.Duration
		var mu sync.Mutex
		begin := time.Now()
		for range 5 {
			go func() {
				if g.enter(ctx) == nil {
					mu.Lock()
					in = append(in, time.Since(begin))
					mu.Unlock()
				}
			}()
		}
		settle(time.Minute)
		if !slices.Equal(in, []time.Duration{time.Second}) {
			t.Fatalf("entered at %v", in)
		}
		if v := g.view(); v.state != StateOffline || v.reason != "down" {
			t.Errorf("%+v", v)
		}
		g.pass()
		synctest.Wait()
		if len(in) != 5 {
			t.Errorf("after the answer %d are in", len(in))
		}
	})
}

func TestGateCountsSimultaneousFailuresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(func() float64 { return 1 })
		for range 4 {
			g.fail("down")
		}
		if d := time.Until(g.view().next); d != time.Second {
			t.Errorf("waits %v", d)
		}
	})
}

func TestGateKeepsWhatTheServerAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(func() float64 { return 0 })
		g.rate(7 * time.Second)
		g.pass() // an answer to an earlier request
		g.retry()
		if d := time.Until(g.view().next); d != 7*time.Second {
			t.Errorf("waits %v", d)
		}
		g.rate(1000 * time.Hour)
		if d := time.Until(g.view().next); d != maxRetryAfter {
			t.Errorf("waits %v", d)
		}
	})
}

func TestGateEndsWithItsContext(t *testing.T) {
	g := newGate(nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.enter(ctx); err == nil {
		t.Error("entered")
	}
	g.pause(true)
	ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := g.enter(ctx); err == nil {
		t.Error("entered although paused")
	}
}

// TestQueueIsFair: one key at a time in one pair of hands, and turn by turn.
func TestQueueIsFair(t *testing.T) {
	q := newQueue()
	ctx := context.Background()
	var got []string
	for _, k := range []string{"a", "b", "a", "c"} {
		q.add(k)
	}
	for range 9 {
		k, err := q.next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, k)
		q.done(k, true, 0)
	}
	if !slices.Equal(got, []string{"a", "b", "c", "a", "b", "c", "a", "b", "c"}) {
		t.Errorf("order %v", got)
	}
}

func TestQueueNeverHandsOutAKeyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ctx, cancel := context.WithCancel(context.Background())
		var mu sync.Mutex
		held := map[string]bool{}
		done := map[string]int{}
		for range 4 {
			go func() {
				for {
					k, err := q.next(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					if held[k] {
						t.Errorf("%s is in two hands", k)
					}
					held[k] = true
					done[k]++
					n := done[k]
					mu.Unlock()
					time.Sleep(time.Duration(len(k)) * time.Millisecond)
					mu.Lock()
					held[k] = false
					mu.Unlock()
					q.done(k, n%3 != 0, time.Duration(n%2)*time.Second)
				}
			}()
		}
		for i := range 100 {
			q.add([]string{"a", "bb", "ccc"}[i%3])
			time.Sleep(time.Millisecond)
			if i%10 == 0 {
				q.hurry()
			}
		}
		settle(time.Minute)
		cancel()
		if len(q.items) != 0 || len(done) != 3 {
			t.Errorf("left %d, done %v", len(q.items), done)
		}
	})
}
