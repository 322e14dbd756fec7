package buffer

import (
	"errors"
	"fmt"
	"reflect"
	"sort"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"

	"github.com/happyd/happyd/watch"
)

// files is a disk of records: what a buffer reads again.
type files struct {
	recs map[string][]watch.Record
	err  error
	read int
}

func (f *files) reread(path string, from, to int64, fn func(watch.Record) error) error {
	f.read++
	if f.err != nil {
		return f.err
	}
	for _, r := range f.recs[path] {
		if r.Offset >= from && r.Offset < to {
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// write appends a record of a size to a file.
func (f *files) write(path, text string) watch.Record {
	if f.recs == nil {
		f.recs = map[string][]watch.Record{}
	}
	off := int64(0)
	if all := f.recs[path]; len(all) > 0 {
		off = all[len(all)-1].Next
	}
	r := watch.Record{Path: path, Offset: off, Next: off + int64(len(text)) + 1, Data: []byte(text), Size: int64(len(text))}
	f.recs[path] = append(f.recs[path], r)
	return r
}

// drain takes everything that a stream holds.
func drain(t *testing.T, b *Buffer, stream string) (got []string) {
	t.Helper()
	for {
		r, ok, err := b.Front(stream)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return got
		}
		got = append(got, string(r.Data))
		b.Pop(stream)
	}
}

func TestHeldRecordsComeBackInOrder(t *testing.T) {
	for _, budget := range []int64{1 << 20, 600, 0} {
		t.Run(fmt.Sprint("budget ", budget), func(t *testing.T) {
			var f files
			bud := NewBudget(budget)
			b := New(bud, f.reread)
			var want []string
			for i := range 10 {
				text := fmt.Sprint("record ", i)
				want = append(want, text)
				b.Push("kid", f.write("kid.jsonl", text), true)
				if bud.Used() > budget {
					t.Fatalf("%d bytes held, %d allowed", bud.Used(), budget)
				}
			}
			if n := b.Len("kid"); n != 10 {
				t.Errorf("Len = %d", n)
			}
			if n, s := b.Orphans(); n != 10 || s != 1 {
				t.Errorf("Orphans = %d, %d", n, s)
			}
			b.Open("kid")
			if got := b.Ready(); !reflect.DeepEqual(got, []string{"kid"}) {
				t.Errorf("Ready = %v", got)
			}
			if got := drain(t, b, "kid"); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v", got)
			}
			if n, _ := b.Orphans(); n != 0 || b.Len("kid") != 0 || bud.Used() != 0 || len(b.Ready()) != 0 {
				t.Errorf("something is left: %d orphans, %d held, %d bytes", n, b.Len("kid"), bud.Used())
			}
		})
	}
}

func TestNestedStreamsAreReadyChildFirst(t *testing.T) {
	var f files
	b := New(NewBudget(0), f.reread)
	b.Open("main")
	for _, s := range []string{"main", "outer", "inner"} {
		b.Push(s, f.write(s, s), true)
	}
	if got := b.Ready(); !reflect.DeepEqual(got, []string{"main"}) {
		t.Errorf("before: %v", got)
	}
	b.Open("outer")
	b.Open("inner")
	b.Open("outer") // opening twice changes nothing
	if got := b.Ready(); !reflect.DeepEqual(got, []string{"inner", "outer", "main"}) {
		t.Errorf("after: %v", got)
	}
}

func TestUnreadableFileKeepsItsPositions(t *testing.T) {
	var f files
	b := New(NewBudget(0), f.reread)
	b.Push("kid", f.write("kid", "one"), true)
	b.Open("kid")
	f.err = errors.New("gone for now")
	if _, _, err := b.Front("kid"); !errors.Is(err, f.err) {
		t.Fatalf("err = %v", err)
	}
	f.err = nil
	if got := drain(t, b, "kid"); !reflect.DeepEqual(got, []string{"one"}) {
		t.Errorf("got %v", got)
	}
}

func TestRewrittenFileLeavesNothingHeld(t *testing.T) {
	var f files
	b := New(NewBudget(0), f.reread)
	b.Push("kid", f.write("kid", "one"), true)
	f.recs["kid"] = nil
	if _, ok, err := b.Front("kid"); ok || err != nil {
		t.Fatal(ok, err)
	}
	if n := b.Len("kid"); n != 0 {
		t.Errorf("Len = %d", n)
	}
}

func TestSkippedRecordsAreNotCounted(t *testing.T) {
	var f files
	b := New(NewBudget(0), f.reread)
	b.Push("kid", f.write("kid", "one"), true)
	f.write("kid", "noise")
	b.Push("kid", f.write("kid", "two"), true)
	b.Open("kid")
	for i, want := range []struct {
		text  string
		noise bool
		left  int
	}{{"one", false, 1}, {"noise", true, 1}, {"two", false, 0}} {
		r, ok, err := b.Front("kid")
		if !ok || err != nil || string(r.Data) != want.text {
			t.Fatalf("%d: %q %v %v", i, r.Data, ok, err)
		}
		if want.noise {
			b.Skip("kid")
		} else {
			b.Pop("kid")
		}
		if n := b.Len("kid"); n != want.left {
			t.Errorf("%d: Len = %d, want %d", i, n, want.left)
		}
	}
}

func TestCloseGivesTheMemoryBack(t *testing.T) {
	var f files
	bud := NewBudget(1 << 20)
	b := New(bud, f.reread)
	for i := range 5 {
		b.Push(fmt.Sprint("s", i%2), f.write(fmt.Sprint("f", i%2), "x"), true)
	}
	b.Drop("s0")
	b.Close()
	if bud.Used() != 0 {
		t.Errorf("%d bytes are still taken", bud.Used())
	}
}

// model is what a buffer must behave like: a list a stream.
type model struct {
	held   map[string][]watch.Record
	opened []string
}

func (m *model) isOpen(s string) bool {
	for _, o := range m.opened {
		if o == s {
			return true
		}
	}
	return false
}

func (m *model) filter(keep func(stream string, r watch.Record) bool) {
	for s, rs := range m.held {
		var kept []watch.Record
		for _, r := range rs {
			if keep(s, r) {
				kept = append(kept, r)
			}
		}
		m.held[s] = kept
	}
}

// TestBufferIsAListAStream runs random operations, with restarts, on a buffer and on the model.
func TestBufferIsAListAStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f files
		limit := rapid.SampledFrom([]int64{0, 700, 3000, 1 << 20}).Draw(t, "budget")
		bud := NewBudget(limit)
		b := New(bud, f.reread)
		m := model{held: map[string][]watch.Record{}}
		stream := func() string { return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "stream") }
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				s := stream()
				path := "own-" + s
				own := true
				if rapid.Bool().Draw(t, "shared") {
					path, own = "shared", false
				}
				n++
				r := f.write(path, fmt.Sprintf("record %d %s", n, string(make([]byte, rapid.IntRange(0, 400).Draw(t, "size")))))
				b.Push(s, r, own)
				m.held[s] = append(m.held[s], r)
			},
			"noise": func(t *rapid.T) {
				f.write(rapid.SampledFrom([]string{"shared", "own-a", "own-b"}).Draw(t, "file"), "noise")
			},
			"open": func(t *rapid.T) {
				s := stream()
				b.Open(s)
				if !m.isOpen(s) {
					m.opened = append(m.opened, s)
				}
			},
			"take": func(t *rapid.T) {
				s := stream()
				for {
					r, ok, err := b.Front(s)
					if err != nil {
						t.Fatal(err)
					}
					if ok && string(r.Data) == "noise" {
						b.Skip(s)
						continue
					}
					if ok != (len(m.held[s]) > 0) {
						t.Fatalf("stream %q: front %v, the model holds %d", s, ok, len(m.held[s]))
					}
					if ok {
						if want := m.held[s][0]; r.Offset != want.Offset || r.Path != want.Path || string(r.Data) != string(want.Data) {
							t.Fatalf("stream %q: got %q, want %q", s, r.Data, want.Data)
						}
						b.Pop(s)
						m.held[s] = m.held[s][1:]
					}
					return
				}
			},
			"drop": func(t *rapid.T) {
				s := stream()
				b.Drop(s)
				delete(m.held, s)
				for i, o := range m.opened {
					if o == s {
						m.opened = append(m.opened[:i:i], m.opened[i+1:]...)
						break
					}
				}
			},
			"drop file": func(t *rapid.T) {
				path := rapid.SampledFrom([]string{"shared", "own-", "own-a", "own-b", "own-c"}).Draw(t, "file")
				b.DropFile(path)
				m.filter(func(_ string, r watch.Record) bool { return r.Path != path })
			},
			"restart": func(t *rapid.T) {
				held := b.Save()
				b.Close()
				if bud.Used() != 0 {
					t.Fatalf("%d bytes are still taken", bud.Used())
				}
				b = New(bud, f.reread)
				b.Restore(held)
			},
			"": func(t *rapid.T) {
				orphans := 0
				var open []string
				for s, rs := range m.held {
					if got := b.Len(s); (got == 0) != (len(rs) == 0) {
						t.Fatalf("stream %q: Len %d, the model holds %d", s, got, len(rs))
					}
					if len(rs) > 0 && !m.isOpen(s) {
						orphans++
					}
					if len(rs) > 0 && m.isOpen(s) {
						open = append(open, s)
					}
				}
				if _, streams := b.Orphans(); streams != orphans {
					t.Fatalf("%d orphan streams, want %d", streams, orphans)
				}
				ready := b.Ready()
				sort.Strings(ready)
				sort.Strings(open)
				if fmt.Sprint(ready) != fmt.Sprint(open) {
					t.Fatalf("ready %v, want %v", ready, open)
				}
				// What was read again to be handed out may go beyond the limit, by one batch a stream.
				if bud.Used() > limit+4*fillBytes || bud.Used() < 0 {
					t.Fatalf("%d bytes used of %d", bud.Used(), limit)
				}
			},
		})
	})
}
