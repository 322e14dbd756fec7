package claude_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/watch"
)

// FuzzMap feeds arbitrary lines to arbitrary streams. A line's first byte chooses where it goes and what happens around it; the
// rest is the record (the reader hands over JSON objects only, the mapper must bear anything). Whatever comes in, the stream stays
// valid, a restart changes nothing of it, and everything is closed at the end.
func FuzzMap(f *testing.F) {
	homes, _ := filepath.Glob("testdata/*/home/projects/*/*.jsonl")
	kids, _ := filepath.Glob("testdata/*/home/projects/*/*/subagents/*.json*")
	for _, path := range append(homes, kids...) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
		for i := range lines {
			lines[i] = append([]byte{byte('0' + i%7)}, lines[i]...)
		}
		f.Add(bytes.Join(lines, []byte("\n")))
		for i := 0; i+3 <= len(lines); i += 3 {
			f.Add(bytes.Join(lines[i:i+3], []byte("\n"))) // small ones are what the fuzzer changes best
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var held []watch.Record
		reread := func(path string, from, to int64, fn func(watch.Record) error) error {
			for _, r := range held {
				if r.Path == path && r.Offset >= from && r.Offset < to {
					if err := fn(r); err != nil {
						return err
					}
				}
			}
			return nil
		}
		o := adapters.SessionOptions{ID: "s", Tag: "tag", Seen: pumptest.Seen{}}
		open := func(saved []byte) *bridge.Pump {
			p, err := bridge.NewPump(claude.Provider{}, o, buffer.New(buffer.NewBudget(2000), reread), saved)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		pump := open(nil)
		now := start
		off := map[string]int64{}
		out, _ := pump.Take()
		for _, line := range bytes.Split(data, []byte("\n")) {
			if len(line) < 2 {
				continue
			}
			b, line := line[0], line[1:]
			pl := adapters.Place{Session: "s", Stream: []string{"", "", "a1", "a2", "wf", "a3", ""}[b%7]}
			if pl.Stream == "wf" {
				pl.Group = "wf_ab12"
			}
			path := "log-" + pl.Stream
			r := watch.Record{Path: path, Offset: off[path], Next: off[path] + int64(len(line)) + 1, Data: line, Size: int64(len(line)), Sum: sha256.Sum256(line)}
			off[path] = r.Next
			switch {
			case b >= 'a' && b < 'h' && pl.Stream != "":
				pump.Observe(adapters.Observation{Kind: adapters.ObserveMeta, Stream: pl.Stream, Data: line}, now)
			case b >= 'h' && b < 'k':
				pump.Observe(adapters.Observation{Kind: adapters.ObserveProcess, Process: adapters.Process{Known: true, Alive: b == 'h', Status: "idle", StatusAt: now}}, now)
			case b >= 'k' && b < 'n':
				r.Oversize, r.Tail = true, line[len(line)/2:]
				r.Data = line[:len(line)/2]
				fallthrough
			default:
				held = append(held, r)
				pump.Feed(pl, r, now)
			}
			if b%5 == 0 {
				now += int64(b) * 20
				pump.Tick(now, b%2 == 0)
			}
			if b%11 == 0 {
				saved, err := pump.Save()
				if err != nil {
					t.Fatal(err)
				}
				envs, _ := pump.Take()
				out = append(out, envs...)
				pump.Close()
				pump = open(saved)
			}
		}
		bridge.Settle(pump, now)
		envs, _ := pump.Take()
		out = append(out, envs...)
		for _, bad := range streamcheck.Check(out) {
			t.Error(bad)
		}
		if left := streamcheck.Open(out); len(left) > 0 {
			t.Error("left open:", left)
		}
	})
}
