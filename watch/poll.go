package watch

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	hotFor     = 10 * time.Minute // what changed this recently is looked at each time
	pollBudget = 256              // how many of the other paths are looked at each time: some 2 ms
)

// A pollItem is a path whose turn comes.
type pollItem struct {
	r    *root
	d    *dir
	name string // of a file; "" for the directory itself
}

// polls says whether anything must be polled.
func (w *Watcher) polls() bool {
	for _, r := range w.roots {
		if r.polled > 0 || r.anchorPolled {
			return true
		}
	}
	return false
}

// poll looks at what the kernel does not tell of: at all that changed lately, and at a bounded number of the rest in turn, so that the cost
// does not grow with the number of old files. The turn comes round after (files+directories)/pollBudget polls.
func (w *Watcher) poll() {
	now := w.o.Clock()
	for _, r := range w.roots {
		if r.anchorPolled {
			w.check(r)
		}
	}
	var hot, all []pollItem
	refill := len(w.queue) == 0
	for _, r := range w.roots {
		if r.polled == 0 {
			continue
		}
		for _, d := range r.dirs {
			if !d.polled {
				continue
			}
			warm := now.Sub(d.mtime) < hotFor
			for name, f := range d.files {
				item := pollItem{r, d, name}
				if now.Sub(f.active) < hotFor {
					warm = true
					hot = append(hot, item)
				}
				if refill {
					all = append(all, item)
				}
			}
			item := pollItem{r, d, ""}
			if warm || d == r.top {
				hot = append(hot, item)
			}
			if refill {
				all = append(all, item)
			}
		}
	}
	if refill {
		w.queue = all
	}
	n := min(pollBudget, len(w.queue))
	for _, item := range hot {
		w.pollOne(item)
	}
	for _, item := range w.queue[:n] {
		w.pollOne(item)
	}
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue = nil
	}
}

func (w *Watcher) pollOne(i pollItem) {
	if i.r.dirs[i.d.path] != i.d {
		return // dropped meanwhile
	}
	path := i.d.path
	if i.name != "" {
		path = filepath.Join(path, i.name)
		fi, err := os.Lstat(path)
		if err != nil {
			w.look(path, fsnotify.Remove, nil)
			return
		}
		if f := i.d.files[i.name]; f != nil && fi.Mode().IsRegular() {
			w.file(i.r, i.d, i.name, fi, f.class, false)
			return
		}
		w.look(path, 0, fi)
		return
	}
	fi, err := os.Stat(path)
	if err != nil {
		w.look(path, fsnotify.Remove, nil)
		return
	}
	// A directory that was read within the tick of its last change may have changed again in the same tick.
	if !fi.ModTime().Equal(i.d.mtime) || i.d.readAt.Sub(i.d.mtime).Abs() < 2*time.Second {
		w.read(i.r, i.d, false)
	}
}
