package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A fake notifier hears nothing, or what the test says.
type fakeNotifier struct {
	add    func(string) error
	events chan fsnotify.Event
	errs   chan error
}

func newFake() *fakeNotifier {
	return &fakeNotifier{add: func(string) error { return nil }, events: make(chan fsnotify.Event), errs: make(chan error)}
}

func (f *fakeNotifier) Add(p string) error            { return f.add(p) }
func (f *fakeNotifier) Remove(string) error           { return nil }
func (f *fakeNotifier) Events() <-chan fsnotify.Event { return f.events }
func (f *fakeNotifier) Errors() <-chan error          { return f.errs }
func (f *fakeNotifier) Close() error                  { return nil }

func (f *fakeNotifier) options() Options {
	return Options{NewNotifier: func() (Notifier, error) { return f, nil }, Poll: 10 * time.Millisecond}
}

func TestOverflowRescans(t *testing.T) {
	root := t.TempDir()
	fake := newFake()
	h := start(t, fake.options(), root)
	mkdir(t, filepath.Join(root, "p"))
	write(t, filepath.Join(root, "p", "a.jsonl"), "")
	time.Sleep(50 * time.Millisecond)
	if h.count(Seen, "a.jsonl") != 0 {
		t.Fatal("seen without an event: the watcher is not idle")
	}
	fake.errs <- fsnotify.ErrEventOverflow
	h.wait(Seen, "a.jsonl", 1)
	if h.w.Status().Overflows != 1 {
		t.Errorf("%+v", h.w.Status())
	}
}

func TestRescan(t *testing.T) {
	root := t.TempDir()
	h := start(t, newFake().options(), root)
	write(t, filepath.Join(root, "a.jsonl"), "")
	h.w.Rescan()
	h.wait(Seen, "a.jsonl", 1)
	h.stop()

	o := newFake().options()
	o.Rescan = 20 * time.Millisecond
	h = start(t, o, root)
	write(t, filepath.Join(root, "b.jsonl"), "")
	h.wait(Seen, "b.jsonl", 1)
}

// Where the limit of watches is reached, only what is beyond it is polled, until there is room again.
func TestWatchLimit(t *testing.T) {
	root := t.TempDir()
	mkdir(t, filepath.Join(root, "p"))
	fake := newFake()
	var full sync.Map
	full.Store("on", true)
	fake.add = func(p string) error {
		if _, on := full.Load("on"); on && filepath.Base(p) == "p" {
			return fmt.Errorf("adding: %w", errNoSpace)
		}
		return nil
	}
	var log strings.Builder
	o := fake.options()
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	h := start(t, o, root)
	write(t, filepath.Join(root, "p", "a.jsonl"), "")
	h.wait(Seen, "a.jsonl", 1)
	appendTo(t, filepath.Join(root, "p", "a.jsonl"), "x")
	h.wait(Changed, "a.jsonl", 1)
	if s := h.w.Status().Roots[0]; s.Mode != "polling" || s.Polled != 1 || !strings.Contains(s.Why, "max_user_watches") {
		t.Errorf("%+v", s)
	}
	full.Delete("on")
	h.w.Rescan()
	h.until("events again", func() bool { return h.w.Status().Roots[0].Mode == "events" })
	h.stop()
	if n := strings.Count(log.String(), "polling"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}

func TestNotifierDies(t *testing.T) {
	root := t.TempDir()
	fake := newFake()
	h := start(t, fake.options(), root)
	close(fake.events)
	write(t, filepath.Join(root, "a.jsonl"), "")
	h.wait(Seen, "a.jsonl", 1)
	if s := h.w.Status().Roots[0]; s.Mode != "polling" {
		t.Errorf("%+v", s)
	}
}

func TestPollReachesOldFiles(t *testing.T) {
	root := t.TempDir()
	old := time.Now().Add(-30 * 24 * time.Hour)
	for i := range 40 {
		d := filepath.Join(root, fmt.Sprint("p", i))
		mkdir(t, d)
		for k := range 20 {
			p := filepath.Join(d, fmt.Sprintf("%d.jsonl", k))
			write(t, p, "")
			os.Chtimes(p, old, old)
		}
		os.Chtimes(d, old, old)
	}
	h := start(t, Options{Poll: 5 * time.Millisecond, NewNotifier: func() (Notifier, error) { return nil, errors.New("none here") }}, root)
	if n := h.count(Seen, ""); n != 800 {
		t.Fatalf("%d files", n)
	}
	appendTo(t, filepath.Join(root, "p39", "19.jsonl"), "x")
	h.wait(Changed, "p39/19.jsonl", 1)
	write(t, filepath.Join(root, "p7", "new.jsonl"), "")
	h.wait(Seen, "p7/new.jsonl", 1)
	os.RemoveAll(filepath.Join(root, "p3"))
	h.wait(Gone, "p3/0.jsonl", 1)
}

func TestRelativeRoot(t *testing.T) {
	if err := New([]Root{{Path: "x"}}, Options{}).Run(context.Background(), nil); err == nil {
		t.Fatal("a relative root was accepted")
	}
}

func BenchmarkIdleRescan5000(b *testing.B) {
	root := b.TempDir()
	for i := range 100 {
		d := filepath.Join(root, fmt.Sprint("p", i))
		mkdir(b, d)
		for k := range 50 {
			write(b, filepath.Join(d, fmt.Sprintf("%d.jsonl", k)), "{}\n")
		}
	}
	w := New([]Root{{Name: "r", Path: root, Classify: classify}}, Options{NewNotifier: func() (Notifier, error) { return newFake(), nil }})
	w.n = newFake()
	w.rescanAll()
	w.out.take(w.roots)
	for b.Loop() {
		w.rescanAll()
		if len(w.out.events) > 0 {
			b.Fatal("not idle")
		}
	}
}
