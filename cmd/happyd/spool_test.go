package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/config"
)

func spoolDaemon(t *testing.T) *daemon {
	t.Helper()
	d := newDaemon(config.Config{StateDir: t.TempDir()}, daemonOptions{Home: t.TempDir()})
	if err := os.MkdirAll(d.spoolDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStreamsThatADeadDaemonLeftAreEnded(t *testing.T) {
	d := spoolDaemon(t)
	write := func(name, text string) string {
		path := filepath.Join(d.spoolDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	started := `{"type":"thread.started","thread_id":"t1"}` + "\n"
	write("a"+pendingSuffix, started+`{"type":"turn.st`)
	decided := write("t2~b.jsonl", started)
	busy := write("c"+pendingSuffix, started)
	d.stream("c", +1)
	left := d.leftStreams()
	if len(left) != 3 {
		t.Fatalf("left %v", left)
	}
	for _, path := range left {
		if err := d.adopt(context.Background(), path); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(d.spoolDir(), "t1~a.jsonl"): started + `{"type":"turn.st` + "\n" + bridge.StreamEnd + "\n",
		decided: started + "\n" + bridge.StreamEnd + "\n",
		busy:    started,
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", filepath.Base(path), got, err, want)
		}
	}
}

func TestAStreamGoesOnAfterItsDecision(t *testing.T) {
	d := spoolDaemon(t)
	s := &spool{d: d}
	lines := []string{string(codex.StreamHeader("/home/dev", "c123456789012345678901234")), `{"type":"thread.started","thread_id":"t1"}` + "\n", `{"type":"turn.started"}` + "\n"}
	for i, l := range lines {
		if err := s.add([]byte(l)); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := s.decide(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.finish(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	id := s.id
	if s.close(); d.streaming(id) {
		t.Error("the stream is still counted")
	}
	got, err := os.ReadFile(filepath.Join(d.spoolDir(), "t1~"+id+".jsonl"))
	if want := strings.Join(lines, "") + "\n" + bridge.StreamEnd + "\n"; err != nil || string(got) != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
}

func TestALongLineIsNotHeldInMemory(t *testing.T) {
	d := spoolDaemon(t)
	const size = 64 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	header := codex.StreamHeader("/home/dev", "c123456789012345678901234")
	body := io.MultiReader(strings.NewReader(string(header)+"{\"type\":\"thread.started\",\"thread_id\":\"t1\"}\n{\"x\":\""), io.LimitReader(zeros{}, size))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // the end of the daemon, once all of it was kept
		defer cancel()
		for {
			all, _ := filepath.Glob(filepath.Join(d.spoolDir(), "*"))
			if len(all) == 1 {
				if fi, err := os.Stat(all[0]); err == nil && fi.Size() > size {
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_ = d.ingest(ctx, codex.Name, body)
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc); used > 2*size {
		t.Errorf("%d MiB were allocated for a line of %d MiB", used>>20, size>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
