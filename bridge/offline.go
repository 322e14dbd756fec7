package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// MapResult counts what an offline mapping left out.
type MapResult struct {
	Sessions int
	Skipped  map[string]int // records by type
	Reader   watch.Skips
	Orphans  int // records of subagents without any sign of a parent
}

// An offlineFile is one located file of a home.
type offlineFile struct {
	path     string
	priority int
	place    adapters.Place
}

// offlineSeen is a set in memory.
type offlineSeen map[uint64]struct{}

func (s offlineSeen) Has(h uint64) bool { _, ok := s[h]; return ok }
func (s offlineSeen) Add(h uint64)      { s[h] = struct{}{} }

// Emit receives one plaintext envelope of a source session.
type Emit func(session string, e protocol.Envelope) error

// MapHome maps every log below one agent home, session by session, as a daemon would that had the whole history before it.
// Nothing is sent or stored. now is the clock in Unix ms.
func MapHome(p adapters.Provider, home string, o adapters.SessionOptions, now int64, emit Emit) (MapResult, error) {
	var files []offlineFile
	for _, root := range p.Roots(home) {
		found, err := collect(p, root, root.Path)
		if err != nil {
			return MapResult{}, err
		}
		files = append(files, found...)
	}
	return mapFiles(p, files, nil, o, now, emit)
}

// MapPath maps the sessions that one path holds: a log (with its subagents' files, which are found beside it), a folder of logs,
// or an agent's home. ok is false when the provider knows nothing there.
func MapPath(p adapters.Provider, path string, o adapters.SessionOptions, now int64, emit Emit) (res MapResult, ok bool, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return MapResult{}, false, fmt.Errorf("look at log: %w", err)
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		for _, root := range p.Roots(dir) {
			// A root that is the home itself only holds an index.
			if !within(root.Path, path) && dir != path || root.Path == filepath.Clean(dir) || !isDir(root.Path) {
				continue
			}
			if dir == path {
				res, err := MapHome(p, path, o, now, emit)
				return res, true, err
			}
			files, err := collect(p, root, root.Path)
			if err != nil {
				return MapResult{}, true, err
			}
			return mapOnly(p, files, path, o, now, emit)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	// Outside any home: the folder of the log takes the place of a project's.
	folder := path
	if !fi.IsDir() {
		folder = filepath.Dir(path)
	}
	root := p.Roots("")[0]
	root.Path = filepath.Dir(folder)
	var files []offlineFile
	if fi.IsDir() {
		files, err = collect(p, root, folder)
	} else {
		beside, _ := filepath.Glob(filepath.Join(folder, "agent-*.jsonl"))
		for _, f := range append([]string{path, strings.TrimSuffix(path, ".jsonl")}, beside...) {
			found, e := collect(p, root, f)
			files, err = append(files, found...), errors.Join(err, e)
		}
	}
	if err != nil || len(files) == 0 {
		return MapResult{}, false, err
	}
	return mapOnly(p, files, path, o, now, emit)
}

func mapOnly(p adapters.Provider, files []offlineFile, path string, o adapters.SessionOptions, now int64, emit Emit) (MapResult, bool, error) {
	only := map[string]bool{}
	for _, f := range files {
		if within(path, f.path) {
			only[f.place.Session] = true
		}
	}
	if len(only) == 0 {
		return MapResult{}, false, nil
	}
	res, err := mapFiles(p, files, only, o, now, emit)
	return res, true, err
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// within says whether path is dir or lies below it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// collect lists the located files of a root that lie at or below a path.
func collect(p adapters.Provider, root watch.Root, below string) ([]offlineFile, error) {
	var files []offlineFile
	var later []func() bool
	err := filepath.WalkDir(below, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && path == below {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(root.Path, path)
		if err != nil || rel == "." {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if root.Descend != nil && !root.Descend(rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if root.Classify(rel) == watch.Ignore {
			return nil
		}
		try := func() bool {
			place, ok := p.Locate(root, rel, func() (watch.Record, bool) {
				r, ok, err := watch.First(path, watch.Limits{})
				return r, ok && err == nil
			})
			if !ok {
				return false
			}
			if place.Session != "" {
				f := offlineFile{path: path, place: place}
				if root.Priority != nil {
					f.priority = root.Priority(rel)
				}
				files = append(files, f)
			}
			return true
		}
		if !try() {
			later = append(later, try)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	// What one file could not tell, another one may have told.
	for n := -1; n != len(later); {
		n = len(later)
		kept := later[:0]
		for _, try := range later {
			if !try() {
				kept = append(kept, try)
			}
		}
		later = kept
	}
	return files, nil
}

// mapFiles maps located files session by session; only limits it to some sessions.
func mapFiles(p adapters.Provider, files []offlineFile, only map[string]bool, o adapters.SessionOptions, now int64, emit Emit) (MapResult, error) {
	sessions := map[string][]offlineFile{}
	for _, f := range files {
		if only == nil || only[f.place.Session] {
			sessions[f.place.Session] = append(sessions[f.place.Session], f)
		}
	}
	res := MapResult{Skipped: map[string]int{}}
	for _, id := range sortedKeys(sessions) {
		if err := mapSession(p, id, sessions[id], o, now, &res, emit); err != nil {
			return res, err
		}
	}
	return res, nil
}

// mapSession maps the files of one session in their reading order, with a clock that jumps over waits.
func mapSession(p adapters.Provider, id string, files []offlineFile, o adapters.SessionOptions, now int64, res *MapResult, emit Emit) error {
	sort.SliceStable(files, func(i, j int) bool { return files[i].priority < files[j].priority })
	o.ID = id
	if o.Tag == "" {
		o.Tag = "map"
	}
	o.Tag += "-" + id
	o.Seen = offlineSeen{}
	pump, err := NewPump(p, o, buffer.New(buffer.NewBudget(64<<20), watch.ReadRange), nil)
	if err != nil {
		return err
	}
	defer pump.Close()
	flush := func() error {
		out, _ := pump.Take()
		for _, e := range out {
			if err := emit(id, e); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range files {
		if f.place.Kind == adapters.KindMeta {
			data, err := os.ReadFile(f.path)
			if err == nil {
				pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: f.place.Stream, Data: data}, now)
			}
			continue
		}
		var c watch.Cursor
		for {
			b, err := watch.Read(f.path, c, watch.Limits{AcceptTail: true})
			if err != nil && len(b.Records) == 0 {
				return fmt.Errorf("read log: %w", err)
			}
			for _, r := range b.Records {
				pump.Feed(f.place, r, now)
			}
			res.Reader.Add(b.Skipped)
			c = b.Cursor
			if err := flush(); err != nil {
				return err
			}
			if !b.More || err != nil {
				break
			}
		}
	}
	Settle(pump, now)
	if err := flush(); err != nil {
		return err
	}
	st := pump.Session().Status()
	if pump.Session().Facts().HasContent {
		res.Sessions++
	}
	for k, n := range st.Counts {
		res.Skipped[k] += n
	}
	n, _ := pump.Orphans()
	res.Orphans += n
	return nil
}

// Settle lets a pump whose input is complete come to rest: the clock jumps from wake to wake, then everything open is closed. It
// returns the clock's last value.
func Settle(p *Pump, now int64) int64 {
	rest := func() {
		for stuck := 0; stuck < 2; {
			n := len(p.out)
			p.Tick(now, true)
			w := p.Wake()
			if w == 0 {
				return
			}
			if stuck++; w > now || len(p.out) > n {
				stuck = 0
			}
			now = max(now, w)
		}
	}
	rest()
	for i := 0; i < 1000; i++ {
		n := len(p.out)
		p.Observe(adapters.Observation{Kind: adapters.ObserveEnd}, now)
		rest()
		if len(p.out) == n {
			break
		}
	}
	return now
}
