package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A root is what is known of a Root's tree.
type root struct {
	Root
	top   *dir              // nil while the root does not exist
	real  string            // the root's path without symbolic links
	dirs  map[string]*dir   // all directories, by path
	links map[string]string // followed links, path to target

	// anchor is a directory above the root that is listened to: its parent, or the nearest ancestor there is, so that the root is
	// noticed when it comes.
	anchor       string
	anchorPolled bool

	files, polled, unreadable int
	why                       string // the first reason for polling
	said                      bool   // it was logged
	lastScan                  time.Time
}

// check brings what is known of a root's existence up to date.
func (w *Watcher) check(r *root) {
	// After each new anchor the root is looked at again: it may have come in between.
	for range 10 {
		exists := isDir(r.Path)
		above := filepath.Dir(r.Path)
		for !exists && !isDir(above) && above != filepath.Dir(above) {
			above = filepath.Dir(above)
		}
		moved := w.setAnchor(r, above)
		switch {
		case !exists && r.top != nil:
			w.drop(r, r.top)
		case exists:
			real, err := filepath.EvalSymlinks(r.Path)
			if err != nil {
				continue // it went again
			}
			r.real = real
			if r.top == nil {
				r.top = &dir{path: r.Path}
				w.enter(r, r.top)
			}
		}
		if !moved {
			return
		}
	}
}

// setAnchor listens to another directory above the root (to none if it is ""), and says whether that is a new one.
func (w *Watcher) setAnchor(r *root, path string) bool {
	if path == r.anchor {
		return false
	}
	if r.anchor != "" && !r.anchorPolled {
		w.unwatch(r.anchor)
	}
	r.anchor, r.anchorPolled = path, false
	if path == "" {
		return false
	}
	if err := w.watch(path); err != nil {
		r.anchorPolled = true
		w.polling(r, path, err)
		if unreachable(err) {
			r.anchor = "" // try again, perhaps further up
		}
	}
	return true
}

// watch listens to a directory. Each watch needs its unwatch.
func (w *Watcher) watch(path string) error {
	if w.n == nil {
		return errors.New(w.why)
	}
	if have := w.watched[path]; have != nil {
		have.refs++
		return nil
	}
	if why := eventless(path); why != "" {
		return errors.New(why)
	}
	files := 0
	if maxWatchedEntries > 0 {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		names, err := f.Readdirnames(maxWatchedEntries + 1)
		f.Close()
		if err == nil && (len(names) > maxWatchedEntries || w.files+len(names) > maxWatchedFiles) {
			return errors.New("too many files to listen to on this system")
		}
		files = len(names)
	}
	if err := w.n.Add(path); err != nil {
		return fmt.Errorf("listening to a directory: %w", err)
	}
	w.watched[path] = &watched{refs: 1, files: files}
	w.files += files
	return nil
}

func (w *Watcher) unwatch(path string) {
	have := w.watched[path]
	if have == nil {
		return
	}
	if have.refs--; have.refs > 0 {
		return
	}
	delete(w.watched, path)
	w.files -= have.files
	if w.n != nil {
		_ = w.n.Remove(path) // the kernel forgot a directory that is gone
	}
}

// polling notes that path has no events, and says so once per root.
func (w *Watcher) polling(r *root, path string, err error) {
	if unreachable(err) {
		return
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = errors.New("the system's limit of watched directories is reached (fs.inotify.max_user_watches)")
	}
	if r.why == "" {
		r.why = err.Error()
	}
	if !r.said {
		r.said = true
		w.o.Log.Warn("no file events for a part of the tree; polling it", "root", r.Name, "path", path, "reason", err)
	}
}

// isDir says whether path leads to a directory.
func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	if !strings.HasPrefix(path, dir) {
		return false
	}
	return len(path) == len(dir) || os.IsPathSeparator(path[len(dir)]) || dir != "" && os.IsPathSeparator(dir[len(dir)-1])
}
