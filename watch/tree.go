package watch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A dir is a directory of a root's tree that is watched or polled.
type dir struct {
	path, rel string
	name      string
	parent    *dir   // nil for the root's
	target    string // where a followed link leads to; "" for a real directory
	linked    bool   // it is a followed link, or below one
	files     map[string]*file
	subs      map[string]*dir
	watched   bool
	polled    bool
	bad       bool      // it could not be listed at the last try
	mtime     time.Time // before it was last read
	readAt    time.Time
}

// A file is what is known of a file: what its last stat said.
type file struct {
	class    Class
	size     int64
	mtime    time.Time
	mode     fs.FileMode
	dev, ino uint64
	active   time.Time // when it last changed
}

// enter takes a new directory into the tree: it listens, and then reads, so that nothing falls between.
func (w *Watcher) enter(r *root, d *dir) {
	d.files, d.subs = map[string]*file{}, map[string]*dir{}
	r.dirs[d.path] = d
	if d.parent != nil {
		d.parent.subs[d.name] = d
	}
	w.listen(r, d, false)
	w.read(r, d, true)
}

// listen asks the kernel for a directory's events, again if it did before. With fresh the old watch is given up first: it may belong to a
// directory that is gone.
func (w *Watcher) listen(r *root, d *dir, fresh bool) {
	if d.watched && w.n != nil && w.watched[d.path] != nil {
		if fresh {
			_ = w.n.Remove(d.path)
		}
		if err := w.n.Add(d.path); err == nil {
			return
		}
		w.unwatch(d.path)
	}
	err := w.watch(d.path)
	d.watched = err == nil
	// Where even looking fails, polling is of no use: the directory above tells when that changes.
	w.setPolled(r, d, err != nil && !unreachable(err))
	if err != nil {
		w.polling(r, d.path, err)
	}
}

func unreachable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

func (w *Watcher) setPolled(r *root, d *dir, polled bool) {
	if d.polled != polled {
		d.polled = polled
		if polled {
			r.polled++
		} else {
			r.polled--
		}
	}
}

// read lists a directory and takes in what is new, changed or gone; with deep, all below it, too.
func (w *Watcher) read(r *root, d *dir, deep bool) {
	now := w.o.Clock()
	fi, err := os.Stat(d.path)
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(d.path)
	}
	if err != nil {
		if r.dirs[d.path] != d {
			return
		}
		if errors.Is(err, fs.ErrNotExist) || fi != nil && !fi.IsDir() {
			w.drop(r, d)
			return
		}
		if !d.bad {
			d.bad = true
			r.unreadable++
			w.o.Log.Warn("a directory cannot be read", "root", r.Name, "path", d.path, "error", err)
		}
		return
	}
	if d.bad {
		d.bad = false
		r.unreadable--
	}
	d.mtime, d.readAt = fi.ModTime(), now
	if maxWatchedEntries > 0 && d.watched && len(entries) > 2*maxWatchedEntries {
		// It has grown too large to be listened to on this system.
		w.unwatch(d.path)
		w.listen(r, d, false)
	}
	here := make(map[string]bool, len(entries))
	var links []string
	for _, e := range entries {
		here[e.Name()] = true
		// Links last: what they lead to may be reached without them.
		if e.Type()&fs.ModeSymlink != 0 {
			links = append(links, e.Name())
		} else {
			w.entry(r, d, e.Name(), e.Type(), e.Info, deep, false)
		}
	}
	for _, name := range links {
		w.entry(r, d, name, fs.ModeSymlink, nil, deep, false)
	}
	for name := range d.files {
		if !here[name] {
			w.gone(r, d, name)
		}
	}
	for name, sub := range d.subs {
		if !here[name] {
			w.drop(r, sub)
		}
	}
}

// entry takes in one entry of a directory. byEvent says that the kernel named it.
func (w *Watcher) entry(r *root, d *dir, name string, typ fs.FileMode, info func() (fs.FileInfo, error), deep, byEvent bool) {
	path, rel := filepath.Join(d.path, name), name
	if d.rel != "" {
		rel = d.rel + "/" + name
	}
	sub, known := d.subs[name], d.files[name]
	if sub != nil && (typ&fs.ModeType != fs.ModeDir && sub.target == "" || typ&fs.ModeSymlink == 0 && sub.target != "") {
		w.drop(r, sub)
		sub = nil
	}
	if known != nil && !typ.IsRegular() {
		w.gone(r, d, name)
		known = nil
	}
	switch {
	case typ.IsRegular():
		class := Ignore
		if known != nil {
			class = known.class
		} else if r.Classify != nil {
			class = r.Classify(rel)
		}
		if class == Ignore {
			return
		}
		if fi, err := info(); err == nil && fi.Mode().IsRegular() {
			w.file(r, d, name, fi, class, byEvent)
		}
	case typ.IsDir():
		w.subdir(r, d, sub, &dir{path: path, rel: rel, name: name, parent: d, linked: d.linked}, deep)
	case typ&fs.ModeSymlink != 0 && !d.linked:
		target, err := filepath.EvalSymlinks(path)
		if err != nil || !isDir(target) || sub != nil && sub.target != target {
			if sub != nil {
				w.drop(r, sub)
				sub = nil
			}
		}
		if err != nil || !isDir(target) || sub == nil && r.overlaps(target) {
			return
		}
		w.subdir(r, d, sub, &dir{path: path, rel: rel, name: name, parent: d, target: target, linked: true}, deep)
	}
}

// overlaps says whether a link's target is reached another way, or leads to a place from which all is reached again.
func (r *root) overlaps(target string) bool {
	if within(target, r.real) || within(r.real, target) {
		return true
	}
	for _, t := range r.links {
		if within(target, t) || within(t, target) {
			return true
		}
	}
	return false
}

// subdir enters the directory d of parent unless it is known as sub.
func (w *Watcher) subdir(r *root, parent, sub, d *dir, deep bool) {
	if r.Descend != nil && !r.Descend(d.rel) {
		if sub != nil {
			w.drop(r, sub)
		}
		return
	}
	if sub == nil {
		if d.target != "" {
			r.links[d.path] = d.target
		}
		w.enter(r, d)
	} else if deep {
		w.listen(r, sub, false)
		w.read(r, sub, true)
	}
}

// file compares a file with what is known of it.
func (w *Watcher) file(r *root, d *dir, name string, fi fs.FileInfo, class Class, byEvent bool) {
	now := w.o.Clock()
	f, op := d.files[name], Changed
	if f == nil {
		f, op = &file{class: class}, Seen
		f.active = fi.ModTime()
		d.files[name] = f
		r.files++
	} else {
		dev, ino := statID(fi)
		same := f.size == fi.Size() && f.mtime.Equal(fi.ModTime()) && f.mode == fi.Mode() && f.dev == dev && f.ino == ino
		// A small file may be written twice within one tick of its file system's clock and keep its length. The kernel tells.
		if same && !(byEvent && class == Sidecar && now.Sub(f.mtime).Abs() < 2*time.Second) {
			return
		}
		f.active = now
	}
	f.size, f.mtime, f.mode = fi.Size(), fi.ModTime(), fi.Mode()
	f.dev, f.ino = statID(fi)
	w.send(r, d, name, f, op)
}

func (w *Watcher) send(r *root, d *dir, name string, f *file, op Op) {
	rel := name
	if d.rel != "" {
		rel = d.rel + "/" + name
	}
	w.out.add(Event{
		Root: r.Name, RootPath: r.Path, Path: filepath.Join(d.path, name), Rel: rel, Class: f.class, Op: op,
		Size: f.size, ModTime: f.mtime, Dev: f.dev, Ino: f.ino,
	})
}

func (w *Watcher) gone(r *root, d *dir, name string) {
	f := d.files[name]
	delete(d.files, name)
	r.files--
	w.send(r, d, name, f, Gone)
}

// drop forgets a directory and all below it.
func (w *Watcher) drop(r *root, d *dir) {
	for name := range d.files {
		w.gone(r, d, name)
	}
	for _, sub := range d.subs {
		w.drop(r, sub)
	}
	if d.watched {
		w.unwatch(d.path)
	}
	w.setPolled(r, d, false)
	if d.bad {
		r.unreadable--
	}
	delete(r.dirs, d.path)
	delete(r.links, d.path)
	if d.parent != nil {
		delete(d.parent.subs, d.name)
	} else if r.top == d {
		r.top = nil
	}
}

// look takes in what an event named; fi is nil if nothing is there.
func (w *Watcher) look(path string, op fsnotify.Op, fi fs.FileInfo) {
	moved := op.Has(fsnotify.Remove) || op.Has(fsnotify.Rename)
	for _, r := range w.roots {
		if path != r.Path && within(r.Path, path) || path == r.Path && (fi == nil || moved || r.top == nil) {
			if moved {
				w.setAnchor(r, "") // the directory that was listened to may be another one by now
				w.again[path] = true
			}
			w.check(r)
		}
		d, parent := r.dirs[path], r.dirs[filepath.Dir(path)]
		name := filepath.Base(path)
		switch {
		case d != nil && fi == nil:
			w.drop(r, d)
			if op.Has(fsnotify.Rename) && d != r.top {
				// If the new name was found first, it got the old name's watch, which is gone now.
				w.again[r.Path] = true
			}
		case d != nil && (fi.IsDir() || d == r.top):
			fresh := moved || op.Has(fsnotify.Create)
			if fresh { // perhaps a new directory under the old name
				w.again[path] = true
			}
			if fresh || !d.watched && !d.polled {
				w.listen(r, d, true)
			}
			w.read(r, d, fresh)
		case parent != nil && fi == nil:
			if parent.files[name] != nil {
				w.gone(r, parent, name)
			}
		case parent != nil:
			w.entry(r, parent, name, fi.Mode().Type(), func() (fs.FileInfo, error) { return fi, nil }, moved, true)
		}
	}
}
