//go:build unix

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/e2e/loggen"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// soakPlan is the size of a soak.
type soakPlan struct {
	sessions, records, kills int
	writing                  time.Duration // for how long logs are written and daemons killed
	away                     time.Duration // for how long the server is away
}

// TestSoak: many sessions with subagents are written while the daemon is killed again and again and the server does everything
// that servers do. HAPPYD_SOAK=1 runs it whole (some ten minutes); without, a small one shows that it works.
func TestSoak(t *testing.T) {
	plan := soakPlan{sessions: 4, records: 1000, kills: 10, writing: 14 * time.Second, away: 3 * time.Second}
	if os.Getenv("HAPPYD_SOAK") != "" {
		plan = soakPlan{sessions: 20, records: 100_000, kills: 500, writing: 8 * time.Minute, away: time.Minute}
	} else {
		t.Parallel()
	}
	s := fakehappy.New()
	m := harness.NewWithFake(t, harness.Options{Bin: bin}, s)
	k := &soak{t: t, m: m, s: s, plan: plan, faults: map[string]int{}, token: fakehappy.Token("acc")}
	k.run()
}

type soak struct {
	t     *testing.T
	m     *harness.Machine
	s     *fakehappy.Server
	plan  soakPlan
	token string

	mu     sync.Mutex
	faults map[string]int // by name

	records, maxRSS, maxQueue int
	maxState                  int64
}

func (k *soak) run() {
	t := k.t
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logs := k.logs()
	k.s.SetFault(k.fault)
	k.m.Start()
	began := time.Now()
	var writers, others sync.WaitGroup
	for i, l := range logs {
		w := loggen.Writer{Dir: filepath.Join(k.m.Home, ".claude", "projects"), Pace: k.plan.writing / time.Duration(len(l)+len(l)/4), Seed: uint64(i)}
		writers.Go(func() {
			if err := w.Run(ctx, l); err != nil {
				t.Error(err)
			}
		})
	}
	others.Go(func() { k.trouble(ctx, began) })
	k.kill(began)
	writers.Wait()
	written := time.Since(began)
	k.s.SetFault(nil)
	cancel()
	others.Wait()
	k.login() // should the last thing have been a refusal
	if err := k.m.TrySettle(4 * time.Minute); err != nil {
		t.Fatal(err)
	}
	drained := time.Since(began) - written
	streams := wantMapped(t, k.m)
	k.wantNothingParked()
	envelopes := 0
	for _, s := range streams {
		envelopes += len(s.Envs)
	}
	k.table(len(streams), envelopes, written, drained)
	k.m.Stop()
}

// logs makes the sessions, about as many records in all as planned.
func (k *soak) logs() (out [][]loggen.Write) {
	for i := range k.plan.sessions {
		o := loggen.Options{ID: fmt.Sprintf("50a40000-0000-4000-8000-0000000001%02x", i), Seed: uint64(1000 + i), Slug: fmt.Sprintf("-home-me-work%d", i%5), Cwd: fmt.Sprintf("/home/me/work%d", i%5)}
		want := k.plan.records / k.plan.sessions
		o.Turns = 20
		o.Turns = max(1, o.Turns*want/loggen.Records(loggen.Session(o)))
		all := loggen.Session(o)
		for loggen.Records(all) < want { // turns differ in size
			o.Turns += 1 + o.Turns/50
			all = loggen.Session(o)
		}
		k.records += loggen.Records(all)
		out = append(out, all)
	}
	return out
}

func (k *soak) did(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults[what]++
}

// fault is what happens to one request.
func (k *soak) fault(r fakehappy.Request) (f fakehappy.Fault) {
	if rand.IntN(10) == 0 {
		k.did("answers delayed")
		f.Delay = time.Duration(rand.IntN(400)) * time.Millisecond
	}
	switch n := rand.IntN(100); {
	case n < 4:
		k.did("failed before the commit (500, 502, 503)")
		f.Status = []int{500, 502, 503}[rand.IntN(3)]
	case n < 8:
		k.did("committed, answer dropped")
		f.DropAnswer = true
	case n < 12:
		k.did("connections reset")
		f.Drop = true
	case n < 13:
		k.did("429 with a pause of 1 s")
		f.Status, f.RetryAfter = http.StatusTooManyRequests, "1"
	}
	return f
}

// trouble is what happens to the server as a whole: sockets are closed, tokens revoked, and once it is away.
func (k *soak) trouble(ctx context.Context, began time.Time) {
	tick := time.NewTicker(k.plan.writing / 60)
	defer tick.Stop()
	gone := false
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch {
		case !gone && time.Since(began) > k.plan.writing/3:
			gone = true
			k.did(fmt.Sprintf("away for %v", k.plan.away))
			k.s.Down()
			select {
			case <-ctx.Done():
			case <-time.After(k.plan.away):
			}
			if err := k.s.Up(); err != nil {
				k.t.Error(err)
			}
		case n%6 == 0:
			// The account logs in again some seconds after its token was refused.
			k.did("tokens revoked (401)")
			k.s.Revoke(k.token)
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			k.login()
		default:
			k.did("all sockets closed")
			k.s.CloseSockets()
		}
	}
}

// login gives the account a new token.
func (k *soak) login() {
	k.token = fmt.Sprintf("dG9r.ZW4.%d", time.Now().UnixNano())
	k.s.Accept(k.token, "acc")
	creds := *k.m.Credentials()
	creds.Token = k.token
	k.m.SaveCredentials(creds)
}

// kill kills the daemon as often as planned, and looks at it in between.
func (k *soak) kill(began time.Time) {
	life := k.plan.writing / time.Duration(k.plan.kills)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range k.plan.kills {
		due := began.Add(time.Duration(i+1) * life)
		// Exponential around the plan: short lives beside long ones.
		wait := time.Duration(rng.ExpFloat64() * float64(time.Until(due)))
		time.Sleep(max(0, min(wait, 4*life)))
		if i%5 == 0 {
			k.look()
		}
		k.m.Kill()
		k.m.Spawn()
	}
}

func (k *soak) look() {
	pid := k.m.PID()
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				var n int
				_, _ = fmt.Sscan(rest, &n)
				k.maxRSS = max(k.maxRSS, n)
			}
		}
	}
	if fi, err := os.Stat(filepath.Join(k.m.StateDir(), "happyd.db")); err == nil {
		k.maxState = max(k.maxState, fi.Size())
	}
	if doc, err := k.m.Status(); err == nil {
		k.maxQueue = max(k.maxQueue, doc.Queue.Messages)
	}
}

func (k *soak) wantNothingParked() {
	doc, err := k.m.Status()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range doc.Sessions {
		if s.Parked > 0 {
			k.t.Errorf("%s: %d messages parked: %s", s.ID, s.Parked, s.ParkedWhy)
		}
	}
}

func (k *soak) table(sessions, envelopes int, written, drained time.Duration) {
	var b strings.Builder
	row := func(what string, format string, args ...any) {
		fmt.Fprintf(&b, "\n| %-42s | %12s |", what, fmt.Sprintf(format, args...))
	}
	row("records written", "%d", k.records)
	row("sessions, each with subagents", "%d", sessions)
	row("daemons killed (-9)", "%d", k.plan.kills)
	row("time of writing and killing", "%v", written.Round(time.Second))
	row("time until delivered and still", "%v", drained.Round(time.Second))
	row("envelopes on the server, each once", "%d", envelopes)
	row("requests", "%d", len(k.s.Requests()))
	for _, what := range slices.Sorted(maps.Keys(k.faults)) {
		row(what, "%d", k.faults[what])
	}
	row("largest RssAnon seen", "%.1f MiB", float64(k.maxRSS)/1024)
	row("longest queue seen", "%d", k.maxQueue)
	row("largest state file seen", "%.1f MiB", float64(k.maxState)/(1<<20))
	if fi, err := os.Stat(filepath.Join(k.m.StateDir(), "happyd.db")); err == nil {
		row("state file in the end", "%.1f MiB", float64(fi.Size())/(1<<20))
	}
	k.t.Log(b.String())
}
