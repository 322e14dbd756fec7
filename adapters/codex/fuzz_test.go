package codex_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/internal/streamcheck"
	"github.com/happyd/happyd/watch"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records cuts bytes into records as the reader would: lines that are JSON objects.
func records(path string, data []byte) (out []watch.Record) {
	off := int64(0)
	for _, line := range bytes.SplitAfter(data, []byte("\n")) {
		at := off
		off += int64(len(line))
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
			continue
		}
		out = append(out, watch.Record{Path: path, Offset: at, Next: off, Data: line, Size: int64(len(line)), Sum: sha256.Sum256(line)})
	}
	return out
}

// checkInputs maps whatever files there are, with and without restarts: never a panic, always a valid stream with nothing left open.
func checkInputs(t *testing.T, p adapters.Provider, id string, files [][]input) {
	r := run{provider: p, id: id, budget: 64 << 20, next: func(left []int) int { return left[0] }, restart: func() bool { return false }, reread: fromMemory(files)}
	want := r.do(t, files)
	for _, bad := range append(streamcheck.Check(want), streamcheck.Open(want)...) {
		t.Error(bad)
	}
	n := 0
	r.restart = func() bool { n++; return n%3 == 0 }
	if d := pumptest.Diff(pumptest.Threads(want), pumptest.Threads(r.do(t, files))); d != "" {
		t.Errorf("with restarts:\n%s", d)
	}
}

// FuzzMap feeds two rollouts of one session: the user's thread and an agent's.
func FuzzMap(f *testing.F) {
	for _, home := range fixtureHomes(f) {
		logs, _ := filepath.Glob(filepath.Join(home, "sessions/*/*/*/*.jsonl"))
		var data [2][]byte
		for i, path := range logs[:min(2, len(logs))] {
			b, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			data[i] = b
		}
		f.Add(data[0], data[1], "")
		f.Add(data[1], data[0], "_"+idChild)
	}
	f.Fuzz(func(t *testing.T, main, child []byte, segment string) {
		if len(main)+len(child) > 1<<18 {
			t.Skip()
		}
		var files [][]input
		for i, data := range [][]byte{main, child} {
			pl := place([]string{adapters.Main, idChild}[i], "")
			if i == 0 && segment == "_"+idChild {
				pl.Key += segment
			}
			var in []input
			for _, r := range records(pl.Key, data) {
				in = append(in, input{pl, r})
			}
			files = append(files, in)
		}
		checkInputs(t, codex.NewProvider(), idRoot, files)
	})
}

// FuzzStream feeds the output of codex exec --json.
func FuzzStream(f *testing.F) {
	paths, _ := filepath.Glob("testdata/streams/*.jsonl")
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<18 {
			t.Skip()
		}
		var in []input
		for _, r := range records("stream", data) {
			codex.StreamThread(r.Data)
			in = append(in, input{adapters.Place{Session: idRoot, Key: "stream"}, r})
		}
		checkInputs(t, codex.StreamProvider{}, idRoot, [][]input{in})
	})
}

// BenchmarkMap maps a session of one long rollout from memory.
func BenchmarkMap(b *testing.B) {
	logs, _ := filepath.Glob("testdata/items/sessions/*/*/*/*.jsonl")
	data, err := os.ReadFile(logs[0])
	if err != nil {
		b.Fatal(err)
	}
	recs := records("x", data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		pump, err := bridge.NewPump(codex.NewProvider(), adapters.SessionOptions{ID: idRoot, Tag: "t", Seen: seenSet{}}, newBuffer(), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range recs {
			pump.Feed(place("", ""), r, testNow)
		}
		pump.Take()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(recs)), "ns/record")
}
