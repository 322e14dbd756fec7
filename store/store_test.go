package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		crashChild()
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func scope(t *testing.T, s *Store, name string) *Scope {
	t.Helper()
	c, err := s.Scope(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func msg(id, body string) Message {
	return Message{LocalID: id, Turn: "t1", Kind: "text", Sealed: []byte(body)}
}

func localIDs(t *testing.T, c *Scope, key string) string {
	t.Helper()
	es, err := c.Peek(key, 1000, 1<<30)
	must(t, err)
	var ids []string
	for _, e := range es {
		ids = append(ids, e.LocalID)
	}
	return strings.Join(ids, " ")
}

func TestCommitSurvivesReopening(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "deep", "state.db")
	s := open(t, path)
	c := scope(t, s, "server|account")
	info := SessionInfo{Tag: "tag1", Wrapped: "AA==", Metadata: []byte{1, 2}, MetadataHash: "h", LastActive: 7}
	must(t, c.Commit(ctx, Commit{
		Session:  "claude:a",
		State:    []byte("sealed state"),
		Info:     &info,
		Seen:     []uint64{3, 1, 2},
		Cursors:  map[string][]byte{"/a": []byte("ca"), "/b": []byte("cb")},
		Messages: []Message{msg("m1", "one"), msg("m2", "two")},
	}))
	must(t, c.Commit(ctx, Commit{
		Session:  "claude:a",
		Seen:     []uint64{9},
		Cursors:  map[string][]byte{"/a": nil, "/b": []byte("cb2")},
		Messages: []Message{msg("m3", "three")},
	}))
	must(t, c.UpdateLink(ctx, "claude:a", "tag1", func(l *Link) { l.ServerID, l.Active = "srv", true }))
	must(t, s.Close())

	s = open(t, path)
	c = scope(t, s, "server|account")
	state, ses, ok, err := c.Session("claude:a")
	must(t, err)
	if !ok || string(state) != "sealed state" || !reflect.DeepEqual(ses.Info, info) {
		t.Errorf("session = %q %+v %v", state, ses, ok)
	}
	if ses.Link != (Link{ServerID: "srv", Active: true}) {
		t.Errorf("link = %+v", ses.Link)
	}
	seen, err := c.Seen("claude:a")
	must(t, err)
	if !reflect.DeepEqual(seen, []uint64{3, 1, 2, 9}) {
		t.Errorf("seen = %v", seen)
	}
	cursors, err := c.Cursors()
	must(t, err)
	if !reflect.DeepEqual(cursors, map[string][]byte{"/b": []byte("cb2")}) {
		t.Errorf("cursors = %q", cursors)
	}
	if got := localIDs(t, c, "claude:a"); got != "m1 m2 m3" {
		t.Errorf("outbox = %s", got)
	}
	q := c.Queued("claude:a")
	if q.Count != 3 || q.Bytes != s.OutboxBytes() || q.Bytes == 0 {
		t.Errorf("queue = %+v, store says %d", q, s.OutboxBytes())
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("file mode = %v, %v", fi.Mode(), err)
	}
	if fi, err := os.Stat(filepath.Dir(path)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("directory mode = %v, %v", fi.Mode(), err)
	}
}

func TestPeekTakesTheOldestThatFit(t *testing.T) {
	c := scope(t, open(t, filepath.Join(t.TempDir(), "s.db")), "x")
	must(t, c.Commit(context.Background(), Commit{Session: "k", Messages: []Message{
		msg("big", strings.Repeat("x", 100)), msg("a", "12345"), msg("b", "12345"), msg("c", "12345")}}))
	for _, tt := range []struct {
		name        string
		n, bytes    int
		want        string
		wantEntries int
	}{
		{"one too big goes alone", 10, 50, "big", 1},
		{"bytes", 10, 110, "big", 3},
		{"count", 2, 1 << 20, "big", 2},
		{"all", 10, 1 << 20, "big", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			es, err := c.Peek("k", tt.n, tt.bytes)
			must(t, err)
			if len(es) != tt.wantEntries || es[0].LocalID != tt.want {
				t.Errorf("got %d entries, first %q", len(es), es[0].LocalID)
			}
		})
	}
	if es, err := c.Peek("unknown", 10, 10); err != nil || es != nil {
		t.Errorf("unknown session: %v, %v", es, err)
	}
}

func TestAckAndReplaceKeepOrder(t *testing.T) {
	ctx := context.Background()
	c := scope(t, open(t, filepath.Join(t.TempDir(), "s.db")), "x")
	must(t, c.Commit(ctx, Commit{Session: "k", Info: &SessionInfo{Tag: "t"},
		Messages: []Message{msg("1", "a"), msg("2", "b"), msg("3", "c"), msg("4", "d")}}))
	es, err := c.Peek("k", 10, 1<<20)
	must(t, err)
	must(t, c.Replace(ctx, "k", "t", es[2].Seq, msg("3x", "cc"), "too large"))
	must(t, c.Ack(ctx, "k", "t", es[1].Seq, 12))
	must(t, c.Ack(ctx, "k", "t", es[0].Seq, 3)) // late and double: no effect
	must(t, c.Replace(ctx, "k", "t", es[0].Seq, msg("1x", "x"), "too large"))
	if got := localIDs(t, c, "k"); got != "3x 4" {
		t.Errorf("outbox = %q", got)
	}
	_, ses, _, err := c.Session("k")
	must(t, err)
	if ses.Link != (Link{Acked: 12, Parked: 1, ParkedWhy: "too large"}) {
		t.Errorf("link = %+v", ses.Link)
	}
	must(t, c.Ack(ctx, "k", "t", 1<<40, 14))
	if q := c.Queued("k"); q != (Queue{}) || len(c.Pending()) != 0 || c.s.OutboxBytes() != 0 {
		t.Errorf("after draining: %+v %v %d", q, c.Pending(), c.s.OutboxBytes())
	}
}

func TestNewTagStartsANewLink(t *testing.T) {
	ctx := context.Background()
	c := scope(t, open(t, filepath.Join(t.TempDir(), "s.db")), "x")
	must(t, c.Commit(ctx, Commit{Session: "k", Info: &SessionInfo{Tag: "t1"}, Messages: []Message{msg("old", "a")}}))
	must(t, c.UpdateLink(ctx, "k", "t1", func(l *Link) { l.ServerID, l.Acked = "one", 40 }))
	old, err := c.Peek("k", 1, 1)
	must(t, err)
	must(t, c.Commit(ctx, Commit{Session: "k", Info: &SessionInfo{Tag: "t2", Generation: 1},
		DropOutbox: true, Messages: []Message{msg("new", "b")}}))

	// What was under way for the former tag must not touch the new session.
	must(t, c.Ack(ctx, "k", "t1", 1<<40, 99))
	must(t, c.Replace(ctx, "k", "t1", old[0].Seq, msg("x", "x"), "why"))
	must(t, c.UpdateLink(ctx, "k", "t1", func(l *Link) { l.Gone = true }))
	_, ses, _, err := c.Session("k")
	must(t, err)
	if ses.Link != (Link{}) {
		t.Errorf("link = %+v", ses.Link)
	}
	now, err := c.Peek("k", 10, 1<<20)
	must(t, err)
	if len(now) != 1 || now[0].LocalID != "new" || now[0].Seq <= old[0].Seq {
		t.Errorf("outbox = %+v", now)
	}
}

func TestScopesAreApart(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	a, b := scope(t, s, "a"), scope(t, s, "b")
	must(t, a.Commit(ctx, Commit{Session: "k", State: []byte("sa"), Cursors: map[string][]byte{"/f": []byte("1")}, Messages: []Message{msg("1", "a")}}))
	if _, _, ok, err := b.Session("k"); ok || err != nil {
		t.Errorf("session visible in the other scope: %v %v", ok, err)
	}
	if got := localIDs(t, b, "k"); got != "" {
		t.Errorf("outbox visible in the other scope: %s", got)
	}
	if _, ok, err := b.Cursor("/f"); ok || err != nil {
		t.Errorf("cursor visible in the other scope: %v %v", ok, err)
	}
	if again := scope(t, s, "a"); again != a {
		t.Error("the same scope is two objects")
	}
}

func TestBadCommitsAreRefused(t *testing.T) {
	c := scope(t, open(t, filepath.Join(t.TempDir(), "s.db")), "x")
	for name, in := range map[string]Commit{
		"no session":     {State: []byte("x")},
		"no local id":    {Session: "k", Messages: []Message{{Sealed: []byte("x")}}},
		"no tag":         {Session: "k", Info: &SessionInfo{}},
		"empty path":     {Session: "k", Cursors: map[string][]byte{"": {}}},
		"huge key":       {Session: strings.Repeat("k", maxKey+1)},
		"huge path":      {Session: "k", Cursors: map[string][]byte{strings.Repeat("p", maxKey+1): {}}},
		"second of pair": {Session: "k", Messages: []Message{msg("1", "x"), {}}},
	} {
		if err := c.Commit(context.Background(), in); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, _, ok, err := c.Session("k"); ok || err != nil {
		t.Errorf("something was kept: %v %v", ok, err)
	}
}

func TestClosedStore(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	c := scope(t, s, "x")
	must(t, s.Close())
	must(t, s.Close())
	if err := c.Commit(context.Background(), Commit{Session: "k", State: []byte("x")}); !errors.Is(err, ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	if _, _, _, err := c.Session("k"); !errors.Is(err, ErrClosed) {
		t.Errorf("session: %v", err)
	}
}

func TestEndedContext(t *testing.T) {
	c := scope(t, open(t, filepath.Join(t.TempDir(), "s.db")), "x")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Commit(ctx, Commit{Session: "k", State: []byte("x")}); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
