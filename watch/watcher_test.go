package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A harness runs a watcher and keeps what it emitted.
type harness struct {
	t    *testing.T
	w    *Watcher
	mu   sync.Mutex
	evs  []Event
	stop func()
}

func classify(rel string) Class {
	switch {
	case strings.HasSuffix(rel, ".jsonl"):
		return Log
	case strings.HasSuffix(rel, ".meta.json"):
		return Sidecar
	}
	return Ignore
}

// start watches roots with classify, and without a rescan unless the options say so.
func start(t *testing.T, o Options, paths ...string) *harness {
	t.Helper()
	var roots []Root
	for i, p := range paths {
		roots = append(roots, Root{
			Name: fmt.Sprint("r", i), Path: p, Classify: classify,
			Descend:  func(rel string) bool { return filepath.Base(rel) != "skip" },
			Priority: func(rel string) int { return strings.Count(rel, "subagents/") },
		})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Rescan == 0 {
		o.Rescan = time.Hour
	}
	h := &harness{t: t, w: New(roots, o)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- h.w.Run(ctx, func(e Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.evs = append(h.evs, e)
		})
	}()
	var once sync.Once
	h.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(h.stop)
	h.until("first scan", func() bool { return h.count(ScanDone, "") == len(paths) })
	return h
}

func (h *harness) events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.evs)
}

// count counts events of a path that ends in suffix.
func (h *harness) count(op Op, suffix string) int {
	n := 0
	for _, e := range h.events() {
		if e.Op == op && strings.HasSuffix(e.Path, filepath.FromSlash(suffix)) {
			n++
		}
	}
	return n
}

// until waits for a condition.
func (h *harness) until(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			var b strings.Builder
			for _, e := range h.events() {
				fmt.Fprintf(&b, "%v %s %d\n", e.Op, e.Path, e.Size)
			}
			h.t.Fatalf("%s: not within 10 s; events:\n%s%+v", what, b.String(), h.w.Status())
		}
	}
}

func (h *harness) wait(op Op, suffix string, n int) {
	h.t.Helper()
	h.until(fmt.Sprintf("%d x %v %s", n, op, suffix), func() bool { return h.count(op, suffix) >= n })
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// both runs a test with kernel events and with polling.
func both(t *testing.T, f func(t *testing.T, o Options)) {
	t.Run("events", func(t *testing.T) { f(t, Options{Poll: time.Hour}) })
	t.Run("polling", func(t *testing.T) {
		f(t, Options{Poll: 10 * time.Millisecond, NewNotifier: func() (Notifier, error) { return nil, errors.New("none here") }})
	})
}

func TestFirstScan(t *testing.T) {
	root := t.TempDir()
	for _, p := range []string{"p/b/subagents/agent-1.jsonl", "p/b/subagents/agent-1.meta.json", "p/b.jsonl", "p/a.jsonl", "p/skip/x.jsonl", "p/notes.txt", "z.jsonl"} {
		mkdir(t, filepath.Dir(filepath.Join(root, p)))
		write(t, filepath.Join(root, p), p)
	}
	h := start(t, Options{}, root, filepath.Join(root, "none"))
	var got []string
	for _, e := range h.events() {
		got = append(got, e.Op.String()+" "+e.Root+" "+e.Class.String()+" "+e.Rel)
		if e.Op == Seen && (e.Size != int64(len(e.Rel)) || e.ModTime.IsZero() || e.RootPath != root || runtime.GOOS == "linux" && e.Ino == 0) {
			t.Errorf("%+v", e)
		}
	}
	want := []string{
		"seen r0 log p/a.jsonl", "seen r0 log p/b.jsonl", "seen r0 log z.jsonl", "seen r0 log p/b/subagents/agent-1.jsonl",
		"seen r0 sidecar p/b/subagents/agent-1.meta.json", "scan-done r0 ignore ", "scan-done r1 ignore ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s := h.w.Status()
	if s.Roots[0].Files != 5 || s.Roots[0].Dirs != 4 || !s.Roots[0].Exists || s.Roots[1].Exists || s.Roots[0].LastScan.IsZero() {
		t.Errorf("%+v", s)
	}
	if runtime.GOOS == "linux" && (s.Roots[0].Mode != "events" || s.Roots[1].Mode != "events") {
		t.Errorf("%+v", s)
	}
}

func TestFileLife(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		root := t.TempDir()
		h := start(t, o, root)
		path := filepath.Join(root, "a.jsonl")
		appendTo(t, path, "1\n")
		h.wait(Seen, "a.jsonl", 1)
		appendTo(t, path, "2\n")
		h.until("the append", func() bool { e := h.events(); return e[len(e)-1].Size == 4 })
		n := h.count(Changed, "a.jsonl")
		write(t, path+".tmp", "1\n2\n")
		rename(t, path+".tmp", path) // same size, another file
		h.wait(Changed, "a.jsonl", n+1)
		rename(t, path, filepath.Join(root, "b.jsonl"))
		h.wait(Gone, "a.jsonl", 1)
		h.wait(Seen, "b.jsonl", 1)
		write(t, filepath.Join(root, "b.jsonl"), "")
		h.until("the truncation", func() bool { e := h.events(); return e[len(e)-1].Size == 0 })
		os.Remove(filepath.Join(root, "b.jsonl"))
		h.wait(Gone, "b.jsonl", 1)
		if got := h.w.Status().Roots[0].Files; got != 0 {
			t.Errorf("%d files are still known", got)
		}
	})
}

func TestLatency(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a.jsonl")
	write(t, path, "")
	h := start(t, Options{}, root)
	if h.w.Status().Roots[0].Mode != "events" {
		t.Skip("no kernel events here")
	}
	var took []time.Duration
	for i := 1; i <= 20; i++ {
		t0 := time.Now()
		appendTo(t, path, "x")
		h.until("the append", func() bool { e := h.events(); return e[len(e)-1].Size == int64(i) })
		took = append(took, time.Since(t0))
	}
	slices.Sort(took)
	t.Logf("append to event: median %v, max %v", took[10], took[19])
	if took[10] > 200*time.Millisecond { // generous: the machine may be busy
		t.Errorf("median %v", took[10])
	}
}

// A whole tree and a file in it appear within one millisecond, many times: none may be missed.
func TestNewNestedDirs(t *testing.T) {
	root := t.TempDir()
	h := start(t, Options{Poll: time.Hour}, root)
	const n = 300
	for i := range n {
		d := filepath.Join(root, fmt.Sprint("y", i), "12", "01")
		mkdir(t, d)
		write(t, filepath.Join(d, "r.jsonl"), "{}\n")
		appendTo(t, filepath.Join(d, "r.jsonl"), "{}\n")
	}
	h.wait(Seen, "01/r.jsonl", n)
	last := map[string]int64{}
	h.until("all bytes", func() bool {
		for _, e := range h.events() {
			last[e.Path] = e.Size
		}
		for _, size := range last {
			if size != 0 && size != 6 {
				return false
			}
		}
		return len(last) >= n
	})
	if got := h.count(Seen, "r.jsonl"); got != n {
		t.Errorf("%d files seen, want %d", got, n)
	}
	if got := h.count(Gone, ""); got != 0 {
		t.Errorf("%d files gone", got)
	}
}

func TestRootLifecycle(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		home := t.TempDir()
		root := filepath.Join(home, ".agent", "deep", "sessions")
		h := start(t, o, root)
		for round := 1; round <= 3; round++ {
			mkdir(t, filepath.Join(root, "p"))
			write(t, filepath.Join(root, "p", "a.jsonl"), "{}\n")
			h.wait(Seen, "a.jsonl", round)
			n := h.count(Changed, "a.jsonl")
			appendTo(t, filepath.Join(root, "p", "a.jsonl"), "{}\n")
			h.wait(Changed, "a.jsonl", n+1)
			switch round {
			case 1: // the whole tree goes
				os.RemoveAll(filepath.Join(home, ".agent"))
			case 2: // only the root goes, and is back at once
				os.RemoveAll(root)
			case 3:
				rename(t, root, root+".old")
			}
			if round == 2 {
				mkdir(t, root)
			}
			h.wait(Gone, "a.jsonl", round)
		}
		if h.count(ScanDone, "") != 1 {
			t.Error("more than one ScanDone")
		}
		mkdir(t, root)
		write(t, filepath.Join(root, "new.jsonl"), "")
		h.wait(Seen, "new.jsonl", 1)
	})
}

// A directory that is removed and made again at once, perhaps with the same inode, is listened to again.
func TestDirReplaced(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "p")
	mkdir(t, dir)
	h := start(t, Options{Poll: time.Hour}, root)
	for i := range 50 {
		os.RemoveAll(dir)
		mkdir(t, dir)
		name := fmt.Sprintf("f%d.jsonl", i)
		write(t, filepath.Join(dir, name), "")
		h.wait(Seen, name, 1)
		appendTo(t, filepath.Join(dir, name), "x")
		h.until("the append", func() bool { e := h.events(); return e[len(e)-1].Size == 1 })
	}
}

func TestDirRenamed(t *testing.T) {
	root := t.TempDir()
	mkdir(t, filepath.Join(root, "a", "sub"))
	write(t, filepath.Join(root, "a", "sub", "f.jsonl"), "")
	h := start(t, Options{Poll: time.Hour}, root)
	names := []string{"a", "b", "c", "a"}
	for i := range 3 {
		rename(t, filepath.Join(root, names[i]), filepath.Join(root, names[i+1]))
		h.wait(Gone, names[i]+"/sub/f.jsonl", 1)
		h.wait(Seen, names[i+1]+"/sub/f.jsonl", 1)
		appendTo(t, filepath.Join(root, names[i+1], "sub", "f.jsonl"), "x")
		h.until("the append", func() bool { e := h.events(); return e[len(e)-1].Size == int64(i+1) })
		write(t, filepath.Join(root, names[i+1], fmt.Sprintf("n%d.jsonl", i)), "")
		h.wait(Seen, fmt.Sprintf("n%d.jsonl", i), 1)
	}
}

func TestSymlinks(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		base := t.TempDir()
		root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
		mkdir(t, filepath.Join(root, "real"))
		mkdir(t, filepath.Join(outside, "nested"))
		write(t, filepath.Join(outside, "nested", "a.jsonl"), "")
		write(t, filepath.Join(outside, "secret.jsonl"), "")
		mkdir(t, filepath.Join(base, "far"))
		write(t, filepath.Join(base, "far", "far.jsonl"), "")
		for link, target := range map[string]string{
			"root/link":       outside,                                // followed
			"root/zlink":      filepath.Join(outside, "nested"),       // reached already
			"root/loop":       root,                                   // a loop
			"root/up":         base,                                   // a loop, too
			"root/inner":      filepath.Join(root, "real"),            // reached already
			"root/f.jsonl":    filepath.Join(outside, "secret.jsonl"), // a file
			"root/dangling":   filepath.Join(base, "nothing"),
			"outside/further": filepath.Join(base, "far"), // only one link is followed
		} {
			if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
				t.Skip(err)
			}
		}
		write(t, filepath.Join(root, "real", "r.jsonl"), "")
		h := start(t, o, root)
		var got []string
		for _, e := range h.events() {
			if e.Op == Seen {
				got = append(got, e.Rel)
			}
		}
		if want := []string{"link/nested/a.jsonl", "link/secret.jsonl", "real/r.jsonl"}; !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		appendTo(t, filepath.Join(outside, "nested", "a.jsonl"), "x")
		h.wait(Changed, "link/nested/a.jsonl", 1)
		write(t, filepath.Join(outside, "new.jsonl"), "")
		h.wait(Seen, "link/new.jsonl", 1)
		// The link goes elsewhere, then away.
		os.Remove(filepath.Join(root, "link"))
		if err := os.Symlink(filepath.Join(base, "far"), filepath.Join(root, "link")); err != nil {
			t.Fatal(err)
		}
		h.wait(Gone, "link/nested/a.jsonl", 1)
		h.wait(Seen, "link/far.jsonl", 1)
		os.Remove(filepath.Join(root, "link"))
		h.wait(Gone, "link/far.jsonl", 1)
	})
}

func TestRootIsSymlink(t *testing.T) {
	base := t.TempDir()
	mkdir(t, filepath.Join(base, "dotfiles", "projects"))
	if err := os.Symlink(filepath.Join(base, "dotfiles"), filepath.Join(base, "agent")); err != nil {
		t.Skip(err)
	}
	h := start(t, Options{Poll: time.Hour}, filepath.Join(base, "agent", "projects"))
	write(t, filepath.Join(base, "dotfiles", "projects", "a.jsonl"), "")
	h.wait(Seen, "agent/projects/a.jsonl", 1)
}

// A pid file is rewritten with the same length, within one tick of the file system's clock: the kernel's word counts.
func TestSidecarSameSize(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "1.meta.json")
	write(t, path, "busy")
	h := start(t, Options{Poll: time.Hour}, root)
	if h.w.Status().Roots[0].Mode != "events" {
		t.Skip("no kernel events here")
	}
	mtime := time.Now()
	for i := 1; i <= 5; i++ {
		n := h.count(Changed, "1.meta.json")
		write(t, path, "idle")
		if err := os.Chtimes(path, mtime, mtime); err != nil {
			t.Fatal(err)
		}
		h.wait(Changed, "1.meta.json", n+1)
	}
}
