package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

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

// MapHome maps every log below one agent home, session by session, as a daemon would that had the whole history before it, and
// calls emit with each plaintext envelope. Nothing is sent or stored. now is the clock in Unix ms.
func MapHome(p adapters.Provider, home string, o adapters.SessionOptions, now int64, emit func(session string, e protocol.Envelope) error) (MapResult, error) {
	files := map[string][]offlineFile{}
	for _, root := range p.Roots(home) {
		err := filepath.WalkDir(root.Path, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) && path == root.Path {
					return nil
				}
				return err
			}
			rel, err := filepath.Rel(root.Path, path)
			if err != nil || rel == "." {
				return err
			}
			if d.IsDir() {
				if root.Descend != nil && !root.Descend(rel) {
					return filepath.SkipDir
				}
				return nil
			}
			if root.Classify(rel) == watch.Ignore {
				return nil
			}
			place, ok := p.Locate(root, rel, func() (watch.Record, bool) {
				r, ok, err := watch.First(path, watch.Limits{})
				return r, ok && err == nil
			})
			if !ok || place.Session == "" {
				return nil
			}
			f := offlineFile{path: path, place: place}
			if root.Priority != nil {
				f.priority = root.Priority(rel)
			}
			files[place.Session] = append(files[place.Session], f)
			return nil
		})
		if err != nil {
			return MapResult{}, fmt.Errorf("list logs: %w", err)
		}
	}
	ids := make([]string, 0, len(files))
	for id := range files {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	res := MapResult{Skipped: map[string]int{}}
	for _, id := range ids {
		if err := mapSession(p, id, files[id], o, now, &res, emit); err != nil {
			return res, err
		}
	}
	return res, nil
}

// mapSession maps the files of one session in their reading order, with a clock that jumps over waits.
func mapSession(p adapters.Provider, id string, files []offlineFile, o adapters.SessionOptions, now int64, res *MapResult, emit func(string, protocol.Envelope) error) error {
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
