package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// childEnv makes the test binary the writer that is killed: it holds the path.
const childEnv = "HAPPYD_STORE_CRASH_CHILD"

const crashSessions = 3

// tiny makes the killed child compact all the time.
var tiny = Options{limits: limits{min: 64 << 10, live: 1 << 30, every: 32 << 10}}

// crashChild commits and acknowledges for ever. Of each session the state and
// the cursor hold the number of the last message, so that a commit that was
// applied in part shows. What has become durable is told on standard output.
func crashChild() {
	s, err := Open(os.Getenv(childEnv), tiny)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	c, err := s.Scope("x")
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var wg sync.WaitGroup
	for i := range crashSessions {
		wg.Go(func() {
			key := fmt.Sprint("s", i)
			if err := crashSession(c, key, say); err != nil {
				say("error: %v", err)
				os.Exit(1)
			}
		})
	}
	wg.Wait()
}

func crashSession(c *Scope, key string, say func(string, ...any)) error {
	ctx := context.Background()
	state, _, ok, err := c.Session(key)
	if err != nil {
		return err
	}
	n := uint64(0)
	if ok {
		n = binary.BigEndian.Uint64(state)
	}
	for {
		var ms []Message
		for range rand.IntN(20) {
			n++
			ms = append(ms, Message{LocalID: fmt.Sprint(n), Sealed: make([]byte, rand.IntN(3000))})
		}
		v := binary.BigEndian.AppendUint64(nil, n)
		err := c.Commit(ctx, Commit{Session: key, State: v, Info: &SessionInfo{Tag: key}, Seen: []uint64{n},
			Cursors: map[string][]byte{"/" + key: v}, Messages: ms})
		if err != nil {
			return err
		}
		say("commit %s %d", key, n)
		if c.Queued(key).Count < 100 && rand.IntN(3) > 0 {
			continue
		}
		es, err := c.Peek(key, 1+rand.IntN(200), 1<<20)
		if err != nil {
			return err
		}
		if len(es) == 0 {
			continue
		}
		last := es[len(es)-1]
		if err := c.Ack(ctx, key, key, last.Seq, int64(last.Seq)); err != nil {
			return err
		}
		say("ack %s %s", key, last.LocalID)
	}
}

// TestKillAtAnyMoment: after kill -9 every commit is there as a whole or not
// at all, what was reported as durable is there, and the order is kept. With
// 32 KiB between two compactions, many kills hit one.
func TestKillAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for seconds")
	}
	path := filepath.Join(t.TempDir(), "state.db")
	commits, acks := map[string]uint64{}, map[string]uint64{}
	for round := range 12 {
		killChild(t, path, time.Duration(30+rand.IntN(150))*time.Millisecond, commits, acks)
		if t.Failed() {
			return
		}
		checkCrashed(t, path, round, commits, acks)
	}
	if commits["s0"] < 100 || acks["s0"] == 0 {
		t.Errorf("only %v commits and %v acknowledgements were made", commits, acks)
	}
}

func killChild(t *testing.T, path string, after time.Duration, commits, acks map[string]uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(stdout)
	first := true
	for sc.Scan() {
		if first {
			first = false
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
		var what, key string
		var n uint64
		if strings.HasPrefix(sc.Text(), "error") {
			t.Error(sc.Text())
			_ = cmd.Process.Kill()
		} else if _, err := fmt.Sscan(sc.Text(), &what, &key, &n); err != nil {
			continue // the line that the kill cut
		} else if what == "commit" {
			commits[key] = max(commits[key], n)
		} else {
			acks[key] = max(acks[key], n)
		}
	}
	_ = cmd.Wait()
}

func checkCrashed(t *testing.T, path string, round int, commits, acks map[string]uint64) {
	t.Helper()
	s, err := Open(path, tiny)
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer s.Close()
	c := scope(t, s, "x")
	var total int64
	for i := range crashSessions {
		key := fmt.Sprint("s", i)
		state, ses, ok, err := c.Session(key)
		must(t, err)
		if !ok {
			continue
		}
		n := binary.BigEndian.Uint64(state)
		cur, _, err := c.Cursor("/" + key)
		must(t, err)
		seen, err := c.Seen(key)
		must(t, err)
		if m := binary.BigEndian.Uint64(cur); m != n || seen[len(seen)-1] != n {
			t.Errorf("round %d: %s: state %d, cursor %d, seen %d", round, key, n, m, seen[len(seen)-1])
		}
		if n < commits[key] {
			t.Errorf("round %d: %s: commit %d was durable, %d is there", round, key, commits[key], n)
		}
		es, err := c.Peek(key, 1<<20, 1<<30)
		must(t, err)
		var bytes int64
		for j, e := range es {
			if want := n - uint64(len(es)-1-j); e.LocalID != fmt.Sprint(want) {
				t.Fatalf("round %d: %s: entry %d of %d is %s, want %d", round, key, j, len(es), e.LocalID, want)
			}
			bytes += int64(len(encodeMessage(e.Message)))
		}
		if first := n - uint64(len(es)) + 1; first <= acks[key] {
			t.Errorf("round %d: %s: %d was acknowledged, the queue begins with %d", round, key, acks[key], first)
		}
		if q := c.Queued(key); q.Count != len(es) || q.Bytes != bytes {
			t.Errorf("round %d: %s: counters %+v, have %d of %d bytes", round, key, q, len(es), bytes)
		}
		if ses.Link.Acked < int64(acks[key]) {
			t.Errorf("round %d: %s: link %+v", round, key, ses.Link)
		}
		total += bytes
	}
	if total != s.OutboxBytes() {
		t.Errorf("round %d: outbox %d, want %d", round, s.OutboxBytes(), total)
	}
}
