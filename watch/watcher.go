package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// DefaultRescan is how often everything is looked at although the kernel tells of changes.
	DefaultRescan = 3 * time.Minute
	// DefaultPoll is how often is looked at what the kernel does not tell of.
	DefaultPoll = time.Second

	coalesce     = 10 * time.Millisecond  // events that come this close together are one
	recheckAfter = 250 * time.Millisecond // a directory that was removed or moved is looked at once more
	minRescanGap = time.Second            // between rescans for lost events
)

// Options of a [Watcher]. The zero value is good.
type Options struct {
	// Log receives what a user may want to know, such as that a tree is polled; nil means slog.Default.
	Log *slog.Logger
	// Clock tells the time that is compared with those of files; nil means time.Now.
	Clock func() time.Time
	// Rescan is the time between two looks at everything; 0 means DefaultRescan.
	Rescan time.Duration
	// Poll is the time between two looks at what is polled; 0 means DefaultPoll. Where kernel events work, nothing is.
	Poll time.Duration
	// NewNotifier makes the source of kernel events; nil means fsnotify. If it fails, everything is polled.
	NewNotifier func() (Notifier, error)
}

// A Watcher tells which files of its roots deserve a look.
type Watcher struct {
	o       Options
	roots   []*root
	request chan struct{} // Rescan was called

	mu     sync.Mutex
	status Status

	// The rest belongs to the goroutine of Run.
	n        Notifier // nil: none works
	why      string   // why n is nil
	watched  map[string]*watched
	files    int // entries of watched directories, where that matters
	out      outbox
	dirty    map[string]fsnotify.Op
	again    map[string]bool // directories to look at once more
	queue    []pollItem
	lastScan time.Time
}

// watched is a directory that the notifier listens to.
type watched struct{ refs, files int }

// Status says how the watcher fares.
type Status struct {
	Roots []RootStatus `json:"roots"`
	// Overflows counts how often the kernel lost events, so that everything was looked at.
	Overflows int `json:"overflows,omitempty"`
}

// RootStatus is the part of one root in a [Status].
type RootStatus struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
	// Mode is "events", or "polling" if at least a part of the tree is polled; Why then tells the reason.
	Mode string `json:"mode"`
	Why  string `json:"why,omitempty"`
	// Dirs are the directories known, Polled those of them that are polled, Unreadable those that could not be listed at the last try.
	Dirs       int `json:"dirs"`
	Polled     int `json:"polled,omitempty"`
	Unreadable int `json:"unreadable,omitempty"`
	// Files are the files known.
	Files int `json:"files"`
	// LastScan is when the tree was last walked.
	LastScan time.Time `json:"last_scan"`
}

// New returns a watcher of roots. Nothing happens before Run.
func New(roots []Root, o Options) *Watcher {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rescan <= 0 {
		o.Rescan = DefaultRescan
	}
	if o.Poll <= 0 {
		o.Poll = DefaultPoll
	}
	if o.NewNotifier == nil {
		o.NewNotifier = newKernelNotifier
	}
	w := &Watcher{
		o: o, request: make(chan struct{}, 1),
		watched: map[string]*watched{}, dirty: map[string]fsnotify.Op{}, again: map[string]bool{},
	}
	for _, r := range roots {
		r.Path = filepath.Clean(r.Path)
		w.roots = append(w.roots, &root{Root: r, dirs: map[string]*dir{}, links: map[string]string{}})
	}
	w.publish()
	return w
}

// Rescan asks for a look at everything, as after the machine slept. It returns at once.
func (w *Watcher) Rescan() {
	select {
	case w.request <- struct{}{}:
	default: // one is due already
	}
}

// Status returns how the watcher fared at the end of its last step.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Roots = slices.Clone(s.Roots)
	return s
}

// Run scans the roots, then watches them until ctx ends, and returns the context's error. It calls emit from its own goroutine; as
// long as emit blocks, nothing is watched, and nothing is lost. Run must be called once.
func (w *Watcher) Run(ctx context.Context, emit func(Event)) error {
	for _, r := range w.roots {
		if !filepath.IsAbs(r.Path) {
			return fmt.Errorf("watching %q: path is not absolute", r.Path)
		}
	}
	n, err := w.o.NewNotifier()
	if err != nil {
		w.why = err.Error()
	} else {
		w.n = n
		defer n.Close()
	}
	deliver := func() bool {
		for _, e := range w.out.take(w.roots) {
			if ctx.Err() != nil {
				return false
			}
			emit(e)
		}
		w.publish()
		return true
	}
	for _, r := range w.roots {
		w.check(r)
		r.lastScan = w.o.Clock()
		if !deliver() {
			return ctx.Err()
		}
		emit(Event{Root: r.Name, RootPath: r.Path, Op: ScanDone})
	}
	w.lastScan = time.Now()

	var flush, recheck, poll <-chan time.Time
	rescan := time.NewTimer(w.o.Rescan)
	defer rescan.Stop()
	for {
		if poll == nil && w.polls() {
			poll = time.After(w.o.Poll)
		}
		var events <-chan fsnotify.Event
		var errs <-chan error
		if w.n != nil {
			events, errs = w.n.Events(), w.n.Errors()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-events:
			if !ok {
				w.notifierDied("the kernel's events ended")
				break
			}
			if e.Name != "" {
				w.dirty[filepath.Clean(e.Name)] |= e.Op
			}
			if flush == nil {
				flush = time.After(coalesce)
			}
			continue
		case err, ok := <-errs:
			if !ok {
				w.notifierDied("the kernel's events ended")
				break
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				w.mu.Lock()
				w.status.Overflows++
				w.mu.Unlock()
			}
			w.o.Log.Debug("file events were lost; looking at everything", "error", err)
			rescan.Reset(max(0, minRescanGap-time.Since(w.lastScan)))
			continue
		case <-flush:
			flush = nil
			w.flush()
			if recheck == nil && len(w.again) > 0 {
				recheck = time.After(recheckAfter)
			}
		case <-recheck:
			recheck = nil
			w.recheck()
		case <-poll:
			poll = nil
			w.poll()
		case <-w.request:
			w.rescanAll()
			rescan.Reset(w.o.Rescan)
		case <-rescan.C:
			w.rescanAll()
			rescan.Reset(w.o.Rescan)
		}
		if !deliver() {
			return ctx.Err()
		}
	}
}

// flush looks at the paths that events named. What is gone comes first: a renamed directory must be forgotten under its old name before it
// is listened to under the new one.
func (w *Watcher) flush() {
	type looked struct {
		path string
		op   fsnotify.Op
		fi   os.FileInfo
	}
	var there []looked
	for path, op := range w.dirty {
		if !w.cares(path) {
			continue
		}
		fi, err := os.Lstat(path)
		if err != nil {
			w.look(path, op, nil)
			continue
		}
		there = append(there, looked{path, op, fi})
	}
	clear(w.dirty)
	slices.SortFunc(there, func(a, b looked) int { return cmp.Compare(a.path, b.path) })
	for _, l := range there {
		w.look(l.path, l.op, l.fi)
	}
}

// cares says whether a path can be of any interest.
func (w *Watcher) cares(path string) bool {
	for _, r := range w.roots {
		if r.dirs[path] != nil || r.dirs[filepath.Dir(path)] != nil || within(r.Path, path) {
			return true
		}
	}
	return false
}

// recheck looks once more at directories that were removed or moved: the notifier may have dropped a watch for the old directory
// after it was given one for the new.
func (w *Watcher) recheck() {
	paths := w.again
	w.again = map[string]bool{}
	for path := range paths {
		for _, r := range w.roots {
			if d := r.dirs[path]; d != nil {
				w.listen(r, d, true)
				w.read(r, d, true)
			}
			if within(r.Path, path) {
				w.check(r)
			}
		}
	}
}

// rescanAll looks at everything, and tries again to listen to what is polled.
func (w *Watcher) rescanAll() {
	for _, r := range w.roots {
		r.why = ""
		w.setAnchor(r, "")
		w.check(r)
		if r.top != nil {
			w.listen(r, r.top, false)
			w.read(r, r.top, true)
		}
		r.lastScan = w.o.Clock()
	}
	w.lastScan = time.Now()
}

func (w *Watcher) notifierDied(why string) {
	w.o.Log.Error("listening to file changes failed; polling instead", "reason", why)
	w.n.Close()
	w.n, w.why = nil, why
	clear(w.watched)
	w.files = 0
	w.rescanAll()
}

func (w *Watcher) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Roots = w.status.Roots[:0:0]
	for _, r := range w.roots {
		s := RootStatus{
			Name: r.Name, Path: r.Path, Exists: r.top != nil, Mode: "events", Dirs: len(r.dirs), Polled: r.polled,
			Unreadable: r.unreadable, Files: r.files, LastScan: r.lastScan,
		}
		if r.polled > 0 || r.anchorPolled {
			s.Mode, s.Why = "polling", r.why
		}
		w.status.Roots = append(w.status.Roots, s)
	}
}
