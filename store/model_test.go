package store

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

// modelSession is what a session should hold.
type modelSession struct {
	tag    string
	gen    int
	out    []string
	parked int
	acked  int64
	seen   int
}

// TestAgainstAModel: random operations, with reopenings in between, leave what
// a model in memory has.
func TestAgainstAModel(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run, ".db"))
		ctx := context.Background()
		var s *Store
		var c *Scope
		reopen := func() {
			if s != nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			o := tiny
			o.hasty = true
			if s, err = Open(path, o); err != nil {
				t.Fatal(err)
			}
			if c, err = s.Scope("x"); err != nil {
				t.Fatal(err)
			}
		}
		reopen()
		defer func() { s.Close() }()
		model := map[string]*modelSession{}
		n := 0
		ok := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		session := func(t *rapid.T) (string, *modelSession) {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session")
			if model[key] == nil {
				model[key] = &modelSession{tag: key + "0"}
				ok(c.Commit(ctx, Commit{Session: key, Info: &SessionInfo{Tag: key + "0"}}))
			}
			return key, model[key]
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				key, m := session(t)
				in := Commit{Session: key, Seen: make([]uint64, rapid.IntRange(0, 3).Draw(t, "seen"))}
				m.seen += len(in.Seen)
				if in.DropOutbox = rapid.IntRange(0, 9).Draw(t, "drop") == 0; in.DropOutbox {
					m.out = nil
				}
				if in.ClearSeen = rapid.IntRange(0, 9).Draw(t, "clear") == 0; in.ClearSeen {
					m.seen = len(in.Seen)
				}
				if rapid.IntRange(0, 9).Draw(t, "tag") == 0 {
					m.gen++
					m.tag = fmt.Sprint(key, m.gen)
					m.acked, m.parked = 0, 0
					in.Info = &SessionInfo{Tag: m.tag}
				}
				for range rapid.IntRange(0, 5).Draw(t, "messages") {
					n++
					in.Messages = append(in.Messages, msg(fmt.Sprint(n), strings.Repeat("x", rapid.IntRange(0, 6000).Draw(t, "size"))))
					m.out = append(m.out, fmt.Sprint(n))
				}
				ok(c.Commit(ctx, in))
			},
			"ack": func(t *rapid.T) {
				key, m := session(t)
				k := rapid.IntRange(0, len(m.out)).Draw(t, "k")
				if k == 0 {
					return
				}
				es, err := c.Peek(key, k, 1<<30)
				ok(err)
				ok(c.Ack(ctx, key, "stale", es[k-1].Seq, 1<<40))
				ok(c.Ack(ctx, key, m.tag, es[k-1].Seq, int64(es[k-1].Seq)))
				m.out, m.acked = m.out[k:], int64(es[k-1].Seq)
			},
			"replace": func(t *rapid.T) {
				key, m := session(t)
				if len(m.out) == 0 {
					return
				}
				es, err := c.Peek(key, 1, 1)
				ok(err)
				ok(c.Replace(ctx, key, m.tag, es[0].Seq, msg("r"+m.out[0], "short"), "why"))
				m.out[0] = "r" + m.out[0]
				m.parked++
			},
			"reopen": func(*rapid.T) { reopen() },
			"": func(t *rapid.T) {
				for key, m := range model {
					es, err := c.Peek(key, 1<<20, 1<<30)
					ok(err)
					var got []string
					for _, e := range es {
						got = append(got, e.LocalID)
					}
					if fmt.Sprint(got) != fmt.Sprint(m.out) || c.Queued(key).Count != len(m.out) {
						t.Fatalf("%s: outbox %v, want %v", key, got, m.out)
					}
					ses, _, err := c.Lookup(key)
					ok(err)
					if ses.Link.Acked != m.acked || ses.Link.Parked != m.parked || ses.Info.Tag != m.tag {
						t.Fatalf("%s: %+v, want %+v", key, ses, m)
					}
					seen, err := c.Seen(key)
					ok(err)
					if len(seen) != m.seen {
						t.Fatalf("%s: %d seen, want %d", key, len(seen), m.seen)
					}
				}
			},
		})
	})
}

// TestCommitsAreGrouped: many sessions committing at once share transactions.
func TestCommitsAreGrouped(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	c := scope(t, s, "x")
	txid := func() (id int) {
		_ = s.view(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
		return id
	}
	before := txid()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if err := c.Commit(context.Background(), Commit{Session: fmt.Sprint(i), State: []byte("s")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := txid() - before; n > 20 {
		t.Errorf("%d transactions for 200 commits made at once", n)
	}
}

func BenchmarkCommit(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "s.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c, err := s.Scope("x")
	if err != nil {
		b.Fatal(err)
	}
	ms := make([]Message, 20)
	for i := range ms {
		ms[i] = msg(fmt.Sprint(i), strings.Repeat("x", 1000))
	}
	b.ReportAllocs()
	b.SetParallelism(20)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := c.Commit(context.Background(), Commit{Session: "k", State: make([]byte, 500), Messages: ms}); err != nil {
				b.Error(err)
			}
		}
	})
}
